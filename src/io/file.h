// Files by their descriptors: whole reads and writes, and files that appear all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

class InputFile {
 public:
  InputFile() = default;
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  // Errors: io_error (errno, the path).
  static Result<InputFile> open(const std::string& path);
  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }  // when it was opened
  // All of `to`, from `offset`. Errors: io_error, corrupt_file (the file ends before).
  Status read(std::int64_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::string path_;
};

// Written beside its name, and renamed to it by finish(); gone if that is never called. What a
// process that was killed left of the same name goes when the next one begins.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  static Result<OutputFile> create(const std::string& path);
  Status write(std::int64_t offset, std::span<const std::byte> from);
  // `sync`: the file and its folder are on the disk before it returns.
  Status finish(bool sync);

 private:
  static void remove_left_overs(const std::string& path);

  int descriptor_ = -1;
  std::string path_;
  std::string temporary_;
};

}  // namespace pagekv::inline v0::internal
