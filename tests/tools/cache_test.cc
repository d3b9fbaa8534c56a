// `pagekv cache`: what it finds, proves and removes; and that wrong use and other people's files
// change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/command.h"
#include "tests/tools/disk_cache.h"

namespace pagekv::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::hours;

// Of one call of DiskCache::store(): 4 pages of one group; of the other, which has a window of 24
// tokens, the last 2; and the name.
constexpr int kRecords = 7;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void make_older(const std::string& path, hours age) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

class CacheCommand : public ::testing::Test {
 protected:
  CacheCommand() {
    fs::create_directory(path("sessions"));
    first_.save(path("sessions/a.safetensors"), "model one");
    second_.save(path("sessions/b"), "model two");
    place_.write("sessions/notes.txt", "not a snapshot, and longer than a header's length");
    first_.store(path("pages"), "model one");
  }

  std::string path(const std::string& name) const { return place_.path(name); }
  Outcome cache(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    return place_.run(arguments);
  }
  // REQUIRES: the command does not fail.
  json cache_json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--format", "json"});
    const Outcome outcome = cache(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  json records() const { return cache_json({"ls", "--records", path("pages")})["entries"]; }
  std::string record_path(const std::string& key) const {
    return path("pages/" + key.substr(0, 2) + "/" + key);
  }
  std::string key_of(const std::string& kind) const {
    for (const json& record : records()) {
      if (record["kind"] == kind) return record["key"];
    }
    ADD_FAILURE() << "no " << kind;
    return "";
  }
  void flip_last_byte(const std::string& file) const {
    std::string bytes = read_file(file);
    bytes.back() ^= 1;
    write_file(file, bytes);
  }
  // Nothing on standard output, a message on the other, and all files still there.
  void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                      const std::string& message) const {
    const Outcome outcome = cache(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("pagekv: ")) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_TRUE(fs::exists(path("sessions/a.safetensors")));
    EXPECT_TRUE(fs::exists(path("sessions/b")));
    EXPECT_TRUE(fs::exists(path("sessions/notes.txt")));
    EXPECT_EQ(records().size(), kRecords);
  }

  Workplace place_;
  DiskCache first_{100};
  DiskCache second_{500};
};

// --- ls ------------------------------------------------------------------------------------------

TEST_F(CacheCommand, ListsSnapshotsAndTiersByTheirContent) {
  const json listing = cache_json({"ls", path("sessions"), path("pages")});
  ASSERT_EQ(listing["entries"].size(), 3u);
  const json& a = listing["entries"][0];
  EXPECT_EQ(a["kind"], "snapshot");
  EXPECT_EQ(a["name"], path("sessions/a.safetensors"));
  EXPECT_EQ(a["tokens"], kCachedTokens);
  EXPECT_EQ(a["model"], "model one");
  EXPECT_EQ(a["bytes"], fs::file_size(path("sessions/a.safetensors")));
  const json& tier = listing["entries"][2];
  EXPECT_EQ(tier["kind"], "tier");
  EXPECT_EQ(tier["records"], kRecords);
  EXPECT_EQ(tier["namespaces"].size(), 1u);
  EXPECT_EQ(listing["total"]["snapshots"], 2);
  EXPECT_EQ(listing["total"]["records"], kRecords);
  std::int64_t bytes = 0;
  for (const json& entry : listing["entries"]) bytes += entry["bytes"].get<std::int64_t>();
  EXPECT_EQ(listing["total"]["bytes"], bytes);

  const Outcome table = cache({"ls", path("sessions"), path("pages")});
  EXPECT_EQ(table.exit_code, 0);
  const std::vector<std::string> words = {"64 tokens",
                                          "model two",
                                          "7 records",
                                          path("sessions/b"),
                                          "2 snapshots, 1 tier of 7 records",
                                          std::to_string(bytes)};
  for (const std::string& word : words) {
    EXPECT_NE(table.out.find(word), std::string::npos) << word << "\n" << table.out;
  }
  const Outcome quiet = cache({"ls", "-q", path("sessions/b"), path("pages")});
  EXPECT_EQ(quiet.out, path("sessions/b") + "\n" + path("pages") + "\n");
}

TEST_F(CacheCommand, ListsRecordsWithTheirPages) {
  int pages[2] = {0, 0};
  int names = 0;
  std::int64_t bytes = 0;
  const json listed = records();
  ASSERT_EQ(listed.size(), kRecords);
  for (const json& record : listed) {
    const std::string key = record["key"];
    EXPECT_EQ(record["bytes"], fs::file_size(record_path(key)));
    EXPECT_EQ(record["namespace"], listed[0]["namespace"]);
    EXPECT_TRUE(record["namespace"].is_string());
    bytes += record["bytes"].get<std::int64_t>();
    if (record["kind"] == "name") {
      ++names;
      continue;
    }
    EXPECT_EQ(record["kind"], "page");
    EXPECT_EQ(record["tokens"], 16);
    ++pages[record["group"].get<int>()];
  }
  EXPECT_EQ(names, 1);
  EXPECT_EQ(pages[0], 4);
  EXPECT_EQ(pages[1], 2);
  const Outcome quiet = cache({"ls", "--records", "-q", path("pages")});
  const std::vector<std::string> keys = lines_of(quiet.out);
  ASSERT_EQ(keys.size(), kRecords);
  for (std::size_t at = 0; at < keys.size(); ++at) EXPECT_EQ(keys[at], listed[at]["key"]);
}

TEST_F(CacheCommand, LeavesWhatItOnlyLooksAtAsItWas) {
  const std::string key = key_of("page");
  make_older(record_path(key), hours(5));
  const auto before = fs::last_write_time(record_path(key));
  fs::remove(path("pages/usage"));
  fs::remove(path("pages/lock"));
  EXPECT_EQ(cache({"ls", path("pages")}).exit_code, 0);
  EXPECT_EQ(cache({"show", path("pages"), key}).exit_code, 0);
  EXPECT_EQ(cache({"verify", path("pages")}).exit_code, 0);
  EXPECT_EQ(fs::last_write_time(record_path(key)), before);
  EXPECT_FALSE(fs::exists(path("pages/usage")));
  EXPECT_FALSE(fs::exists(path("pages/lock")));
}

TEST_F(CacheCommand, AnEmptyTierIsOne) {
  ASSERT_TRUE(open_directory_tier(path("empty"), {.cap_bytes = 1 << 20}));
  EXPECT_EQ(cache_json({"ls", path("empty")})["entries"][0]["records"], 0);
  EXPECT_EQ(cache_json({"ls", "--records", path("empty")})["entries"].size(), 0u);
  EXPECT_NE(cache({"show", path("empty")}).out.find("records    0"), std::string::npos);
  EXPECT_EQ(cache({"verify", path("empty")}).exit_code, 0);
  EXPECT_EQ(cache({"rm", path("empty"), "--all"}).exit_code, 0);
  EXPECT_EQ(cache({"prune", path("empty"), "--to", "0"}).exit_code, 0);
}

// --- show ----------------------------------------------------------------------------------------

TEST_F(CacheCommand, ShowsASnapshotAsInspectDoes) {
  const std::string file = path("sessions/b");
  EXPECT_EQ(cache({"show", file}).out, place_.run({"inspect", file}).out);
  EXPECT_EQ(cache({"show", file, "--format", "json"}).out,
            place_.run({"inspect", file, "--json"}).out);
}

TEST_F(CacheCommand, ShowsATierAndARecord) {
  const json tier = cache_json({"show", path("pages")});
  EXPECT_EQ(tier["records"], kRecords);
  EXPECT_EQ(tier["pages"], 6);
  EXPECT_EQ(tier["names"], 1);
  EXPECT_EQ(tier["others"], 0);
  ASSERT_EQ(tier["namespaces"].size(), 1u);
  EXPECT_EQ(tier["namespaces"][0]["bytes"], tier["bytes"]);

  const std::string key = key_of("page");
  const json record = cache_json({"show", path("pages"), key.substr(0, 16)});
  EXPECT_EQ(record["key"], key);
  EXPECT_EQ(record["namespace"], tier["namespaces"][0]["namespace"]);
  ASSERT_EQ(record["tokens"].size(), 16u);
  EXPECT_EQ(record["tokens"][0].get<int>() % 16, 100 % 16);
  // A head of 128 bytes and a tag of 112 + 64, in whole 64 bytes, before the value.
  EXPECT_EQ(record["bytes"].get<int>() - record["value_bytes"].get<int>(), 256);
  const Outcome text = cache({"show", path("pages"), key});
  EXPECT_NE(text.out.find("16: "), std::string::npos) << text.out;
  const Outcome name = cache({"show", path("pages"), key_of("name")});
  EXPECT_NE(name.out.find("secret"), std::string::npos) << name.out;
}

// --- verify --------------------------------------------------------------------------------------

TEST_F(CacheCommand, VerifiesWhatIsWhole) {
  const Outcome outcome = cache({"verify", path("sessions"), path("pages")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("2 snapshots and 7 records checked")) << outcome.out;
  EXPECT_NE(outcome.out.find("all whole"), std::string::npos);
  EXPECT_NE(outcome.err.find("1 other file"), std::string::npos) << outcome.err;
}

TEST_F(CacheCommand, VerifyNamesEveryFault) {
  const std::string key = key_of("page");
  flip_last_byte(record_path(key));
  const std::string snapshot = path("sessions/a.safetensors");
  flip_last_byte(snapshot);
  const Outcome outcome = cache({"verify", path("sessions"), path("pages")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find(key), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(snapshot + ": the data of"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("2 faults"), std::string::npos) << outcome.out;
  EXPECT_TRUE(fs::exists(record_path(key))) << "verify changes nothing";
  EXPECT_NE(cache({"show", path("pages"), key}).exit_code, 0);
}

TEST_F(CacheCommand, ADamagedHeaderIsSeenByAll) {
  const std::string snapshot = path("sessions/a.safetensors");
  std::string bytes = read_file(snapshot);
  bytes.resize(bytes.size() - 1);
  write_file(snapshot, bytes);
  const Outcome listed = cache({"ls", path("sessions")});
  EXPECT_EQ(listed.exit_code, 1);
  EXPECT_NE(listed.out.find("damaged"), std::string::npos) << listed.out;
  EXPECT_NE(listed.err.find(snapshot), std::string::npos) << listed.err;
  EXPECT_EQ(cache({"show", snapshot}).exit_code, 1);
  EXPECT_EQ(cache({"verify", path("sessions")}).exit_code, 1);
  EXPECT_EQ(cache({"rm", snapshot}).exit_code, 0) << "one of pagekv, though damaged";
}

// --- rm ------------------------------------------------------------------------------------------

TEST_F(CacheCommand, RemovesSnapshots) {
  const Outcome outcome = cache({"rm", path("sessions/a.safetensors"), path("sessions/b")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find(path("sessions/b")), std::string::npos);
  EXPECT_NE(outcome.out.find("removed 2 snapshots"), std::string::npos) << outcome.out;
  EXPECT_FALSE(fs::exists(path("sessions/a.safetensors")));
  EXPECT_FALSE(fs::exists(path("sessions/b")));
  EXPECT_TRUE(fs::exists(path("sessions/notes.txt")));
}

TEST_F(CacheCommand, RemovesRecordsByTheBeginningsOfTheirKeys) {
  const json listed = records();
  const std::string first = listed[0]["key"], second = listed[1]["key"];
  const Outcome outcome = cache({"rm", path("pages"), "--key", first.substr(0, 12), second, first});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(lines_of(outcome.out).size(), 3u) << outcome.out;
  EXPECT_NE(outcome.out.find("removed 2 records"), std::string::npos) << outcome.out;
  EXPECT_FALSE(fs::exists(record_path(first)));
  EXPECT_FALSE(fs::exists(record_path(second)));
  EXPECT_EQ(records().size(), kRecords - 2u);
}

TEST_F(CacheCommand, RemovesANamespaceOrAll) {
  second_.store(path("pages"), "model two");
  const json tier = cache_json({"show", path("pages")});
  ASSERT_EQ(tier["namespaces"].size(), 2u);
  const std::string space = tier["namespaces"][0]["namespace"];
  const Outcome outcome = cache({"rm", path("pages"), "--namespace", space});
  EXPECT_NE(outcome.out.find("removed 7 records"), std::string::npos) << outcome.out;
  const json left = cache_json({"show", path("pages")});
  EXPECT_EQ(left["records"], kRecords);
  EXPECT_EQ(left["namespaces"][0]["namespace"], tier["namespaces"][1]["namespace"]);
  EXPECT_EQ(cache({"rm", path("pages"), "--all"}).exit_code, 0);
  EXPECT_EQ(records().size(), 0u);
}

// --- prune ---------------------------------------------------------------------------------------

TEST_F(CacheCommand, PrunesATierLeastRecentlyUsedFirst) {
  const json before = records();
  const std::string name = key_of("name");
  const std::string oldest = before[0]["key"] == name ? before[1]["key"] : before[0]["key"];
  make_older(record_path(name), hours(9));  // older, and stays: pages are no use without it
  make_older(record_path(oldest), hours(5));
  std::int64_t bytes = 0;
  for (const json& record : before) bytes += record["bytes"].get<std::int64_t>();
  const Outcome outcome = cache({"prune", path("pages"), "--to", std::to_string(bytes - 1)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("pruned 1 record, ")) << outcome.out;
  EXPECT_NE(outcome.out.find("; 6 records left, "), std::string::npos) << outcome.out;
  EXPECT_FALSE(fs::exists(record_path(oldest)));
  EXPECT_TRUE(fs::exists(record_path(name)));
  EXPECT_EQ(cache({"prune", path("pages"), "--to", "0"}).exit_code, 0);
  EXPECT_EQ(records().size(), 0u);
}

TEST_F(CacheCommand, PrunesWhatIsOld) {
  const json before = records();
  for (const json& record : before) make_older(record_path(record["key"]), hours(100));
  const std::string page = key_of("page");
  make_older(record_path(page), hours(1));
  const Outcome outcome = cache({"prune", path("pages"), "--older-than", "2d"});
  EXPECT_TRUE(outcome.out.starts_with("pruned 5 records")) << outcome.out;
  EXPECT_TRUE(fs::exists(record_path(page)));
  EXPECT_TRUE(fs::exists(record_path(key_of("name"))));
  EXPECT_TRUE(cache({"prune", path("pages"), "--older-than", "1000h", "--to", "1G"})
                  .out.starts_with("pruned 0 records"));
}

TEST_F(CacheCommand, PrunesAFolderOfSnapshots) {
  make_older(path("sessions/b"), hours(30));
  make_older(path("sessions/notes.txt"), hours(90));
  const Outcome outcome = cache({"prune", path("sessions"), "--older-than", "1d"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("pruned 1 snapshot"), std::string::npos) << outcome.out;
  EXPECT_FALSE(fs::exists(path("sessions/b")));
  EXPECT_TRUE(cache({"prune", path("sessions"), "--to", "1G"}).out.starts_with("pruned 0"));
  EXPECT_EQ(cache({"prune", path("sessions"), "--to", "1"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(path("sessions/a.safetensors")));
  EXPECT_TRUE(fs::exists(path("sessions/notes.txt")));
}

// --- a tier in use -------------------------------------------------------------------------------

TEST_F(CacheCommand, WorksOnATierInUse) {
  auto tier = open_directory_tier(path("pages"), {.cap_bytes = 64 << 20});
  ASSERT_TRUE(tier);
  EXPECT_EQ(records().size(), kRecords);
  EXPECT_EQ(cache({"verify", path("pages")}).exit_code, 0);
  EXPECT_EQ(cache({"rm", path("pages"), "--key", key_of("page")}).exit_code, 0);
  EXPECT_EQ(cache({"prune", path("pages"), "--to", "144"}).exit_code, 0);
  EXPECT_EQ((*tier)->list(false)->size(), 1u);
  first_.store(path("pages"), "model one");
  EXPECT_EQ(records().size(), kRecords);
}

// --- wrong use -----------------------------------------------------------------------------------

TEST_F(CacheCommand, RefusesWhatIsNothingOfItsOwn) {
  const std::string notes = path("sessions/notes.txt"), missing = path("missing");
  fs::create_directory(path("nothing"));
  fs::create_directory(path("texts"));
  place_.write("texts/a.txt", "a");
  for (const std::string verb : {"ls", "show", "verify", "rm"}) {
    expect_refused({verb, missing}, 1, "missing: No such file");
    expect_refused({verb, notes}, 1, "no snapshot");
    expect_refused({verb, path("nothing")}, 1, "it is empty; nor does it hold a snapshot");
    expect_refused({verb, path("texts")}, 1, "nor does it hold a snapshot");
    expect_refused({verb, "/dev/null"}, 1, "neither a file nor a folder");
  }
  expect_refused({"prune", path("texts"), "--to", "0"}, 1, "nor does it hold a snapshot");
  expect_refused({"prune", missing, "--to", "0"}, 1, "missing: No such file");
  expect_refused({"prune", path("sessions/b"), "--to", "0"}, 1, "prune takes a folder");
  expect_refused({"rm", path("sessions/b"), notes}, 1, "no snapshot");
  expect_refused({"rm", path("sessions")}, 1, "is a folder");
  expect_refused({"show", path("sessions")}, 1, "is a folder");
  EXPECT_TRUE(fs::is_empty(path("nothing"))) << "looking makes no tier of it";
  place_.write("pages/format", "pagekv tier, format 2\n");
  EXPECT_NE(cache({"ls", path("pages")}).err.find("format 2"), std::string::npos);
  EXPECT_EQ(cache({"prune", path("pages"), "--to", "0"}).exit_code, 1);
  place_.write("pages/format", "pagekv tier, format 1\n");
  EXPECT_EQ(records().size(), kRecords);
}

TEST_F(CacheCommand, RefusesCommandLinesThatMakeNoSense) {
  const std::string tier = path("pages"), file = path("sessions/b");
  expect_refused({}, 2, "there are ls, show, verify, rm and prune");
  expect_refused({"list", tier}, 2, "no command cache list; there are ls");
  expect_refused({"ls", tier, "--frobnicate"}, 2, "frobnicate");
  expect_refused({"ls"}, 2, "paths");
  expect_refused({"ls", tier, "--format", "xml"}, 2, "table");
  expect_refused({"ls", tier, "-q", "--format", "json"}, 2, "excludes");
  expect_refused({"show", tier, "xyz"}, 2, "'xyz'");
  expect_refused({"show", file, "00"}, 2, "only a tier has records");
  expect_refused({"rm", tier}, 2, "--key, --namespace or --all");
  expect_refused({"rm", file, "--all"}, 2, "records of a tier");
  expect_refused({"rm", tier, tier, "--all"}, 2, "one tier");
  expect_refused({"rm", tier, "--key", "0g"}, 2, "'0g'");
  expect_refused({"rm", tier, "--key"}, 2, "--key");
  expect_refused({"rm", tier, "--all", "--namespace", "00"}, 2, "excludes");
  expect_refused({"prune", tier}, 2, "--older-than");
  expect_refused({"prune", tier, "--to", "plenty"}, 2, "--to");
  expect_refused({"prune", tier, "--to", "-1"}, 2, "--to");
  expect_refused({"prune", tier, "--to", "99999999999999999999"}, 2, "--to");
  for (const char* time : {"7", "d", "-1d", "7y", "7dd", "99999999999999999d"}) {
    expect_refused({"prune", tier, "--older-than", time}, 2, "such as 12h or 7d");
  }
  expect_refused({"show", tier, std::string(16, '0')}, 1, "there is no record");
  expect_refused({"rm", tier, "--namespace", std::string(64, '0')}, 1, "there is no namespace");
}

TEST_F(CacheCommand, AsksForMoreDigits) {
  // Of more than sixteen keys some two begin alike.
  for (TokenId first = 1000; first < 1003; ++first) DiskCache(first).store(path("pages"), "m");
  std::vector<std::string> keys;
  for (const json& record : records()) keys.push_back(record["key"]);
  ASSERT_GT(keys.size(), 16u);
  std::sort(keys.begin(), keys.end());
  const auto twin =
      std::adjacent_find(keys.begin(), keys.end(),
                         [](const std::string& a, const std::string& b) { return a[0] == b[0]; });
  ASSERT_NE(twin, keys.end());
  const Outcome outcome = cache({"rm", path("pages"), "--key", twin->substr(0, 1)});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("give more digits"), std::string::npos) << outcome.err;
  EXPECT_EQ(records().size(), keys.size());
}

}  // namespace
}  // namespace pagekv::testing
