// MappedFile: a file's bytes, mapped read-only.
//
// Move-only. The bytes stay at their address while the MappedFile lives, also when it is moved.
// Safe to read on any thread. If another process shortens the file meanwhile, reading the lost part
// raises SIGBUS, as with any mapping.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

class MappedFile {
 public:
  // Errors: io_error (detail: the path; number: errno), also for what is not a regular file.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace pagekv::inline v0::engine
