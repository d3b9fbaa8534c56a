#include "pagekv/device.h"

#include "core/backend.h"

namespace pagekv::inline v0 {

Device::Device(std::shared_ptr<internal::Backend> backend) : backend_(std::move(backend)) {}
Device::~Device() = default;
Device::Device(const Device&) = default;
Device& Device::operator=(const Device&) = default;
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&&) noexcept = default;

std::string Device::name() const {
  return backend_->name();
}
TileArrangement Device::suggested_arrangement() const {
  return backend_->suggested_arrangement();
}
Executor& Device::executor() const {
  return backend_->executor();
}

}  // namespace pagekv::inline v0
