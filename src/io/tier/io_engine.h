// What a directory tier asks of the system where records are concerned: the place where another way
// of moving bytes goes, and where tests let things fail.
//
// Each function is the system call of its name: it blocks, gives -1 with errno where it fails, and
// may move fewer bytes than asked. All are called by many threads at once. Paths are relative to
// the open folder `folder`.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace pagekv::inline v0::internal {

class IoEngine {
 public:
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine();

  virtual ssize_t read(int file, std::span<std::byte> to, std::int64_t offset);
  virtual ssize_t write(int file, std::span<const std::byte> from, std::int64_t offset);
  virtual int create(int folder, const char* path);  // a new file; a descriptor
  virtual int resize(int file, std::int64_t bytes);
  virtual int sync(int file);
  virtual int rename(int folder, const char* from, const char* to);
  virtual int remove(int folder, const char* path);
};

// All of `to`; 0 or errno. The end of the file within it is kEndOfFile.
inline constexpr int kEndOfFile = -1;
int read_all(IoEngine& engine, int file, std::span<std::byte> to, std::int64_t offset);
// All of `from`; 0 or errno.
int write_all(IoEngine& engine, int file, std::span<const std::byte> from, std::int64_t offset);

}  // namespace pagekv::inline v0::internal
