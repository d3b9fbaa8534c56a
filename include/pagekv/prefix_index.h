// PrefixIndex: finds the longest stored prefix of a token string, and hands out sequences that
// share its pages.
//
//   auto index = PrefixIndex::make(store);
//   auto space = index->open({.model = fingerprint});
//   auto sequence = index->match(*space, prompt);      // shares what is stored; compute the rest
//   ...                                                // steps, as always
//   index->insert(*space, tokens, *sequence);          // its committed tokens, for those who come
//
// Tokens are compared, all of them, on every hit: nothing is found by a hash. A hit is as long as
// the common beginning, token by token; where it ends inside a page, that page is shared and copied
// only when somebody writes behind it. A sequence from the index gives, bit for bit, what one
// computed from nothing gives, as long as the namespace names all that keys and values depend on.
//
// The index is the store's reclaimer: when a pool is full, the prefixes nobody uses are given up,
// least recently used first, from the end of a prefix to its beginning. Pinned ones stay.
//
// Layers with windows: a hit of t tokens needs the rows that token t would see. The index keeps
// whatever a sequence still had when it was inserted, which is the last window + slack tokens
// (LayoutSpec::window_slack_tokens), and reports no prefix that it cannot serve. Insert a sequence
// at the end of its prompt, too, if its window is to move on.
//
// Handles share what is behind them. All functions may be called on any thread; insert() reads its
// sequence, which belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pagekv/attend.h"
#include "pagekv/digest.h"
#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/sequence.h"
#include "pagekv/store.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

namespace internal {
class PrefixIndexState;
class PrefixSpace;
struct PrefixPinState;
struct PrefixRequestState;
}  // namespace internal

using TokenId = std::int32_t;

// What keys and values depend on beside the tokens. Two fields can never be taken for each other.
// The layout (shapes, formats, page size) and the numerics of the store's device are part of every
// namespace without being named.
struct NamespaceSpec {
  std::string model =
      {};  // fingerprint of the weights, and of the positional encoding if it varies
  std::string adapter = {};  // fingerprint of a LoRA or the like; empty: none
  // Secret of a tenant, so that nobody else can find, or time, what it stored; empty: shared by
  // all. It must come from the server, never from a request.
  std::string salt = {};
  Arithmetic arithmetic = Arithmetic::exact;  // that computed the hidden states
};

// Counters since the namespace was opened, or over all of them.
struct PrefixStats {
  std::int64_t matches = 0;          // calls
  std::int64_t hits = 0;             // of those, with at least one token found
  std::int64_t matched_tokens = 0;   // looked for
  std::int64_t hit_tokens = 0;       // of those, found
  std::int64_t inserts = 0;          // calls
  std::int64_t inserted_pages = 0;   // new ones
  std::int64_t duplicate_pages = 0;  // were there already
  std::int64_t evicted_pages = 0;    // given up by the reclaimer
  std::int64_t stored_pages = 0;     // now, of tokens: a page of all groups counts once
  std::int64_t stored_tokens = 0;    // now
  std::int64_t index_bytes = 0;      // now: memory of the index itself, without the pages
};

// A namespace of one index: what open() gives. Copies share. It ends with invalidate(): from then
// on nothing is found under it, and nothing can be inserted.
class PAGEKV_API PrefixNamespace {
 public:
  PrefixNamespace() = default;  // empty: valid() is false
  explicit PrefixNamespace(std::shared_ptr<internal::PrefixSpace> state)
      : state_(std::move(state)) {}
  bool valid() const { return state_ != nullptr; }
  const Digest& digest() const;  // REQUIRES: valid()

  const std::shared_ptr<internal::PrefixSpace>& state() const { return state_; }

 private:
  std::shared_ptr<internal::PrefixSpace> state_;
};

// Keeps a prefix from being given up while it lives. Move-only.
class PAGEKV_API PrefixPin {
 public:
  PrefixPin();  // pins nothing
  explicit PrefixPin(std::unique_ptr<internal::PrefixPinState> state);
  ~PrefixPin();
  PrefixPin(PrefixPin&&) noexcept;
  PrefixPin& operator=(PrefixPin&&) noexcept;
  std::int64_t tokens() const;  // that are pinned

 private:
  std::unique_ptr<internal::PrefixPinState> state_;
};

// A request whose prompt is not all stored, so that a prefix that many ask for at the same time is
// computed once. The scheduler polls it until it is ready, then matches and computes the rest,
// inserting as it goes. Requests that begin like it wait meanwhile. When it is dropped, finished or
// not, the next one of them that is polled goes on. Move-only; one thread at a time.
class PAGEKV_API PrefixRequest {
 public:
  PrefixRequest();  // empty: valid() is false
  explicit PrefixRequest(std::unique_ptr<internal::PrefixRequestState> state);
  ~PrefixRequest();
  PrefixRequest(PrefixRequest&&) noexcept;
  PrefixRequest& operator=(PrefixRequest&&) noexcept;
  bool valid() const { return state_ != nullptr; }
  // Whether to go on. False while a ready request is computing at least a page more of this prompt
  // than is stored. Once true it stays true.
  bool poll();

 private:
  std::unique_ptr<internal::PrefixRequestState> state_;
};

inline constexpr int kPrefixPriorities = 4;  // 0 is given up first

struct InsertOptions {
  // 0 to kPrefixPriorities - 1. All prefixes of lower priority are given up before any of a higher
  // one. A prefix has the highest priority it was inserted with.
  int priority = 0;
};

struct MatchOptions {
  // Tokens at the end that are not to be found: with 1, a prompt that is stored whole still has its
  // last token to compute, whose logits are wanted.
  std::int64_t leave_tokens = 1;
};

// What becomes of the index, for metrics and routers. Full pages only.
struct PrefixEvent {
  enum class Kind : std::uint8_t { stored = 0, removed = 1, cleared = 2 };
  Kind kind = Kind::stored;
  std::int64_t number = 0;           // 0, 1, 2 ... A gap: events were lost, since nobody took them
  Digest space{};                    // of the namespace
  Digest digest{};                   // of the page; zero for cleared
  Digest parent{};                   // of the page before it; of the namespace for the first
  std::vector<TokenId> tokens = {};  // of a stored page
};

// Where pages go that the reclaimer gives up. Called by the thread that needs pages, without the
// locks of index and store; must be thread-safe, and must not end a namespace.
class PAGEKV_API PageSink {
 public:
  struct Page {
    Digest space{};
    Digest digest{};
    Digest parent{};
    std::vector<TokenId> tokens = {};  // of this page
    // The page's rows, from its first token (View::first) to its last. The page is free when the
    // last copy of this view is dropped.
    View view = {};
  };
  virtual ~PageSink();
  virtual void give_up(const Page& page) noexcept = 0;
  // A namespace ended: nothing stored under this digest may be served again. No page of it comes
  // afterwards, until it is opened anew.
  virtual void invalidate(const Digest& space) noexcept = 0;
};

struct PrefixIndexOptions {
  std::int64_t max_events = 0;  // kept until they are taken; 0: none are made
  std::shared_ptr<PageSink> sink = {};
};

class PAGEKV_API PrefixIndex {
 public:
  // Becomes the store's reclaimer. Errors: invalid_argument.
  static Result<PrefixIndex> make(const Store& store, PrefixIndexOptions options = {});

  // The namespace with these fields: always the same one until it is invalidated.
  Result<PrefixNamespace> open(const NamespaceSpec& spec);

  // A sequence with the longest stored prefix of `tokens`; empty where nothing is found. Errors:
  // invalid_argument, out_of_memory.
  Result<Sequence> match(const PrefixNamespace& space, std::span<const TokenId> tokens,
                         MatchOptions options = {});
  // Length of what match() would find. Counts nothing and does not make it recently used.
  Result<std::int64_t> peek(const PrefixNamespace& space, std::span<const TokenId> tokens,
                            MatchOptions options = {}) const;

  // Stores the first tokens.size() committed tokens of a sequence, which are `tokens`. What is
  // there already is not stored again; a stored page that nobody reads gives way to the sequence's
  // own of the same tokens. The sequence reads its own pages as before. Returns the tokens that
  // were not there. Errors: invalid_argument (more tokens than are committed; pages that are stored
  // under other tokens or another namespace), wrong_store, invalidated, out_of_memory.
  Result<std::int64_t> insert(const PrefixNamespace& space, std::span<const TokenId> tokens,
                              const Sequence& sequence, InsertOptions options = {});

  // Pins the longest stored prefix of `tokens`.
  Result<PrefixPin> pin(const PrefixNamespace& space, std::span<const TokenId> tokens);
  // Announces a request for `tokens`.
  Result<PrefixRequest> request(const PrefixNamespace& space, std::span<const TokenId> tokens);

  // Ends a namespace, or all: new weights, a tenant that left. Nothing of it is found from then on,
  // also by those who hold its handle; pages that sequences hold stay theirs; sequences of the old
  // namespace cannot be inserted into the one that open() gives next under its name.
  void invalidate(const PrefixNamespace& space);
  void clear();

  // The chain of digests of the full pages of `tokens`: SHA-256 over the digest before it (of the
  // namespace for the first) and the page's tokens; docs/reuse.md says how. For use outside the
  // process; the index finds nothing by it.
  Result<std::vector<Digest>> digests(const PrefixNamespace& space,
                                      std::span<const TokenId> tokens) const;

  PrefixStats stats() const;  // over all namespaces, ended ones too
  PrefixStats stats(const PrefixNamespace& space) const;
  std::vector<PrefixEvent> take_events();
  // Proves the structure. Errors: books_broken, which is a bug in pagekv.
  Status check() const;

  const std::shared_ptr<internal::PrefixIndexState>& state() const { return state_; }

 private:
  explicit PrefixIndex(std::shared_ptr<internal::PrefixIndexState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<internal::PrefixIndexState> state_;
};

}  // namespace pagekv::inline v0
