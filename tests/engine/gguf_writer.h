// GgufWriter: makes small GGUF files in memory, good ones and bad ones, for tests and fuzz seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace pagekv::testing {

template <typename T>
std::string raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string raw_string(std::string_view text) {
  return raw<std::uint64_t>(text.size()).append(text);
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;          // of tensors; does not write general.alignment
  std::uint64_t extra_tensor_count = 0;  // what the header promises too much
  std::uint64_t extra_metadata_count = 0;

  // `value`: the bytes behind the value type.
  void entry(std::string_view key, std::uint32_t type, std::string_view value) {
    metadata_ += raw_string(key) + raw(type);
    metadata_ += value;
    ++metadata_count_;
  }

  template <typename T>
  void number(std::string_view key, engine::GgufType type, T value) {
    entry(key, static_cast<std::uint32_t>(type), raw(value));
  }

  void boolean(std::string_view key, bool value) {
    number(key, engine::GgufType::boolean, static_cast<std::uint8_t>(value));
  }

  void string(std::string_view key, std::string_view value) {
    entry(key, static_cast<std::uint32_t>(engine::GgufType::string), raw_string(value));
  }

  void strings(std::string_view key, const std::vector<std::string>& values) {
    std::string value = array_header(engine::GgufType::string, values.size());
    for (const std::string& element : values) value += raw_string(element);
    entry(key, static_cast<std::uint32_t>(engine::GgufType::array), value);
  }

  template <typename T>
  void numbers(std::string_view key, engine::GgufType element, const std::vector<T>& values) {
    std::string value = array_header(element, values.size());
    for (const T& number_value : values) value += raw(number_value);
    entry(key, static_cast<std::uint32_t>(engine::GgufType::array), value);
  }

  void tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              std::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, shape, type, data_.size());
    data_ += data;
  }

  // An entry without data of its own.
  void tensor_at(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                 std::uint64_t offset) {
    tensors_ += raw_string(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t dimension : shape) tensors_ += raw(dimension);
    tensors_ += raw(type) + raw(offset);
    ++tensor_count_;
  }

  std::string finish() const {
    std::string out = "GGUF" + raw(version) + raw(tensor_count_ + extra_tensor_count) +
                      raw(metadata_count_ + extra_metadata_count) + metadata_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  static std::string array_header(engine::GgufType element, std::uint64_t count) {
    return raw(static_cast<std::uint32_t>(element)) + raw(count);
  }

  std::string metadata_, tensors_, data_;
  std::uint64_t metadata_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace pagekv::testing
