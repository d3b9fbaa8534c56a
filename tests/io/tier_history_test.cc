// Random histories of a directory tier against a map and a list: puts, reads, removals, pins, caps
// that change, restarts, clocks that jump, damage, pruning. What is there, its order and its bytes
// are the model's after every operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "io/tier/record.h"
#include "io/tier_client.h"
#include "support/random_history.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kNumbers = 40;

// The slow, obvious tier.
class Model {
 public:
  struct Entry {
    std::uint64_t number;
    Blob value, tag;
    std::int64_t bytes() const { return internal::record_bytes(tag.size(), value.size()); }
  };

  Entry* find(std::uint64_t number) {
    const auto at = place(number);
    return at == entries_.end() ? nullptr : &*at;
  }
  void use(std::uint64_t number) { entries_.splice(entries_.end(), entries_, place(number)); }
  void remove(std::uint64_t number) {
    if (find(number) != nullptr) entries_.erase(place(number));
  }
  bool make_room(std::int64_t to_bytes) {
    while (bytes() > to_bytes) {
      const auto victim =
          std::find_if(entries_.begin(), entries_.end(),
                       [this](const Entry& entry) { return !pins.contains(entry.number); });
      if (victim == entries_.end()) return false;
      entries_.erase(victim);
    }
    return true;
  }
  TierOutcome put(Entry entry, bool replace, std::int64_t cap_bytes) {
    const Entry* old = find(entry.number);
    if (old != nullptr && !replace && old->bytes() == entry.bytes()) {
      use(entry.number);
      return TierOutcome::present;
    }
    if (entry.bytes() > cap_bytes) return TierOutcome::too_large;
    if (!make_room(cap_bytes - entry.bytes())) return TierOutcome::no_room;
    remove(entry.number);
    entries_.push_back(std::move(entry));
    return TierOutcome::ok;
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Entry& entry : entries_) sum += entry.bytes();
    return sum;
  }
  const std::list<Entry>& entries() const { return entries_; }

  std::multiset<std::uint64_t> pins;

 private:
  std::list<Entry>::iterator place(std::uint64_t number) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [number](const Entry& entry) { return entry.number == number; });
  }

  std::list<Entry> entries_;  // least recently used first
};

class TierHistory {
 public:
  explicit TierHistory(unsigned seed) : random_(seed) { restart(); }

  void step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5: return put_one();
      case 6:
      case 7:
      case 8:
      case 9: return get_one();
      case 10: return remove_one();
      case 11: return pin_one();
      case 12: return unpin_one();
      case 13: return below(4) == 0 ? restart() : move_clock();
      case 14: return below(4) == 0 ? prune() : move_clock();
      default: return damage_one();
    }
  }
  void check() {
    ASSERT_EQ(bytes_on_disk(folder_.path("tier")), model_.bytes());
    const TierStats stats = tier_->stats();
    ASSERT_EQ(stats.bytes, model_.bytes());
    ASSERT_EQ(stats.records, static_cast<std::int64_t>(model_.entries().size()));
    if (below(16) != 0) return;  // listing also puts right what the tier knows, so: not always
    const auto list = tier_->list(true);
    ASSERT_TRUE(list);
    ASSERT_EQ(list->size(), model_.entries().size());
    auto record = list->begin();
    for (const Model::Entry& entry : model_.entries()) {
      ASSERT_EQ(record->key, key_of(entry.number));
      ASSERT_EQ(record->bytes, entry.bytes());
      ASSERT_EQ(record->tag, entry.tag);
      ++record;
    }
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void put_one() {
    Model::Entry entry{.number = below(kNumbers), .value = {}, .tag = tag_of(below(5))};
    entry.value = random_bytes(random_(), below(8) == 0 ? below(9000) : 200 + 100 * below(3));
    const bool replace = below(3) == 0;
    const TierOutcome outcome =
        put(*tier_, key_of(entry.number), entry.value, entry.tag, {.replace = replace}).outcome;
    ASSERT_EQ(outcome, model_.put(entry, replace, cap_bytes_)) << name(outcome);
  }
  void get_one() {
    const std::uint64_t number = below(kNumbers);
    const Model::Entry* entry = model_.find(number);
    const Got got = get(*tier_, key_of(number));
    ASSERT_EQ(got.outcome, entry != nullptr ? TierOutcome::ok : TierOutcome::absent);
    ASSERT_EQ(exists(*tier_, key_of(number)), entry != nullptr);
    if (entry == nullptr) return;
    ASSERT_EQ(got.value, entry->value);
    ASSERT_EQ(got.tag, entry->tag);
    model_.use(number);
  }
  void remove_one() {
    const std::uint64_t number = below(kNumbers);
    const bool there = model_.find(number) != nullptr;
    ASSERT_EQ(remove(*tier_, key_of(number)).outcome,
              there ? TierOutcome::ok : TierOutcome::absent);
    model_.remove(number);
  }
  void pin_one() {
    const std::uint64_t number = below(kNumbers);
    if (model_.pins.size() > 8) return;
    const Digest key = key_of(number);
    ASSERT_TRUE(tier_->pin({&key, 1}));
    model_.pins.insert(number);
  }
  void unpin_one() {
    if (model_.pins.empty()) return;
    const auto pin =
        std::next(model_.pins.begin(), static_cast<std::ptrdiff_t>(below(model_.pins.size())));
    const Digest key = key_of(*pin);
    tier_->unpin({&key, 1});
    model_.pins.erase(pin);
  }
  void restart() {
    tier_.reset();
    cap_bytes_ = static_cast<std::int64_t>(1000 + below(12) * 1000);
    model_.pins.clear();
    tier_ =
        open_tier(folder_.path("tier"), {.cap_bytes = cap_bytes_, .threads = 1, .use_interval = {}},
                  {.system_ns = [this] { return now_.load(); }});
    ASSERT_TRUE(tier_);
    ASSERT_TRUE(model_.make_room(cap_bytes_));
  }
  void move_clock() {
    const std::int64_t by = static_cast<std::int64_t>(below(3'600'000'000'000));
    now_ += below(2) == 0 ? by : -by;
  }
  void prune() {
    const auto to_bytes = static_cast<std::int64_t>(below(8000));
    const std::int64_t before = model_.bytes();
    model_.make_room(to_bytes);
    ASSERT_EQ(*tier_->prune(to_bytes), before - model_.bytes());
  }
  void damage_one() {
    if (model_.entries().empty()) return;
    const std::uint64_t number = model_.entries().front().number;
    const std::string file = folder_.path("tier/" + internal::record_path(key_of(number)));
    std::string bytes = read_file(file);
    const std::size_t at = below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    write_file(file, bytes);
    ASSERT_EQ(get(*tier_, key_of(number)).outcome, TierOutcome::corrupt);
    model_.remove(number);
  }

  std::mt19937_64 random_;
  TemporaryFolder folder_;
  std::atomic<std::int64_t> now_ = std::int64_t{1'700'000'000} * 1'000'000'000;
  std::int64_t cap_bytes_ = 0;
  std::unique_ptr<Tier> tier_;
  Model model_;
};

TEST(TierHistory, AgreesWithAMapAndAList) {
  const unsigned seed = test_seed();
  for (int history = 0; history < 4 * test_scale(); ++history) {
    TierHistory tier(seed + static_cast<unsigned>(history));
    for (int step = 0; step < 400; ++step) {
      tier.step();
      if (!::testing::Test::HasFatalFailure()) tier.check();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "history " << history << " step " << step;
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
