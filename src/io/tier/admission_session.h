// A time during which one process alone changes a tier's folder. Of admission.cc only.
#pragma once

#include "io/tier/admission.h"

namespace pagekv::inline v0::internal {

class Admission::Session {
 public:
  // Waits for the folder. `recount`: lists it, too, also if the shared numbers are good.
  Session(Admission& owner, bool recount);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int error() const { return error_; }  // errno: the folder cannot be worked on
  bool listed() const { return listed_; }
  void list();          // brings books and numbers up to date; error() may be set then
  bool is_old() const;  // whether others have added much since the last listing

  // Before files change. 0 or errno: then nothing may be added; removing is allowed, since a count
  // that is too high harms nobody.
  int mark();
  void distrust() { distrusted_ = true; }  // whoever comes next shall list the folder
  TierUsage usage;                         // written back at the end

 private:
  class Lock {
   public:
    explicit Lock(Admission& owner);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    int error() const { return error_; }

   private:
    const std::lock_guard<std::mutex> guard_;
    const UsageFile& shared_;
    const int error_;
  };

  Admission& owner_;
  const Lock lock_;
  int error_ = 0;
  bool listed_ = false;
  bool marked_ = false;
  bool distrusted_ = false;
  TierUsage read_;  // as it is in the file
};

}  // namespace pagekv::inline v0::internal
