#include "pagekv/codec.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <span>

#include "codec/packing.h"

namespace pagekv::inline v0 {

namespace {

constexpr std::array kAffineBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kCodebookBits = {1, 2, 3, 4, 5, 8};
constexpr std::array kAffineGroups = {8, 16, 32, 64, 128};
constexpr std::array kCodebookGroups = {32, 64, 128};

std::string list(std::span<const int> numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

bool contains(std::span<const int> numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

// What is legal for one kind of grouped codec.
struct Legal {
  const char* kind;
  std::span<const int> bits;
  std::span<const int> groups;
  bool whole_head;
};

Legal legal(CodecKind kind) {
  if (kind == CodecKind::affine) return {"affine", kAffineBits, kAffineGroups, false};
  return {"codebook", kCodebookBits, kCodebookGroups, true};
}

// The largest legal group up to `most` that divides dim; the whole head where there is none and it
// is legal; -1 where nothing is.
int largest_group(const Legal& legal, int most, std::int64_t dim) {
  for (std::size_t i = legal.groups.size(); i-- > 0;) {
    const int group = legal.groups[i];
    if (group <= most && dim % group == 0) return group;
  }
  return legal.whole_head ? VectorCodec::kWholeHead : -1;
}

std::string legal_groups(const Legal& legal, std::int64_t dim) {
  std::string text;
  for (const int group : legal.groups) {
    if (dim % group == 0) text += (text.empty() ? "" : ", ") + std::to_string(group);
  }
  if (legal.whole_head) text += text.empty() ? "the whole head" : " and the whole head";
  return text;
}

}  // namespace

VectorCodec VectorCodec::dense(DType dtype) {
  return VectorCodec(CodecKind::dense, dtype);
}

VectorCodec VectorCodec::affine(int bits, Group group, DType scales) {
  VectorCodec codec(CodecKind::affine, scales);
  codec.bits_ = bits;
  codec.group_ = group;
  return codec;
}

VectorCodec VectorCodec::codebook(int bits, Group group, ScaleFit fit, DType scales) {
  VectorCodec codec(CodecKind::codebook, scales);
  codec.bits_ = bits;
  codec.group_ = group;
  codec.fit_ = fit;
  return codec;
}

VectorCodec VectorCodec::rotated() const {
  VectorCodec codec = *this;
  codec.rotated_ = true;
  return codec;
}

int VectorCodec::bits() const {
  return kind_ == CodecKind::dense ? 8 * static_cast<int>(size_bytes(dtype_)) : bits_;
}

Status VectorCodec::check_bits() const {
  if (kind_ == CodecKind::dense) return {};
  const Legal rules = legal(kind_);
  if (contains(rules.bits, bits_)) return {};
  return fail(ErrorCode::invalid_argument, "{s}", {},
              std::string(rules.kind) + " codes of " + std::to_string(bits_) + " bits; legal are " +
                  list(rules.bits));
}

Status VectorCodec::check() const {
  if (auto ok = check_bits(); !ok || kind_ == CodecKind::dense) return ok;
  const Legal rules = legal(kind_);
  const int group = group_.elements;
  const bool whole = rules.whole_head && (group_.at_most || group == kWholeHead);
  const bool known = group_.at_most ? group >= rules.groups.front() : contains(rules.groups, group);
  if (whole || known) return {};
  return fail(ErrorCode::invalid_argument, "{s}", {},
              std::string(rules.kind) + " groups of " + (group_.at_most ? "up to " : "") +
                  std::to_string(group) + " elements; legal are " + list(rules.groups) +
                  (rules.whole_head ? " and the whole head" : ""));
}

Result<VectorCodec> VectorCodec::resolve(std::int64_t dim) const {
  if (dim < 8 || dim % 8 != 0) {
    return fail(ErrorCode::invalid_argument, "a head of {0} elements; legal are multiples of 8",
                {dim});
  }
  if (auto ok = check_bits(); !ok) return tl::unexpected(ok.error());
  if (kind_ == CodecKind::dense) return *this;
  const Legal rules = legal(kind_);
  VectorCodec settled = *this;
  if (group_.at_most) settled.group_ = exactly(largest_group(rules, group_.elements, dim));
  // One name for what is stored alike.
  const bool whole = rules.whole_head && settled.group_.elements == kWholeHead;
  if (whole && contains(rules.groups, static_cast<int>(dim))) {
    settled.group_ = exactly(static_cast<int>(dim));
  }
  const int group = settled.group_.elements;
  if (whole || (contains(rules.groups, group) && dim % group == 0)) return settled;
  return fail(ErrorCode::invalid_argument, "{s}", {},
              std::string(rules.kind) + " groups of " + std::to_string(group_.elements) +
                  " elements in a head of " + std::to_string(dim) + "; legal are " +
                  legal_groups(rules, dim));
}

std::int64_t VectorCodec::group_elements(std::int64_t dim) const {
  assert(!group_.at_most);
  return group_.elements == kWholeHead ? dim : group_.elements;
}

std::int64_t VectorCodec::groups(std::int64_t dim) const {
  return kind_ == CodecKind::dense ? 0 : dim / group_elements(dim);
}

std::vector<Plane> VectorCodec::planes(std::int64_t dim) const {
  constexpr std::int64_t kWord = internal::kWordBytes;
  const std::int64_t size = size_bytes(dtype_);
  if (kind_ == CodecKind::dense) return {{PlaneKind::codes, dim * size, kWord}};
  std::vector<Plane> planes = {{PlaneKind::codes, internal::packed_bytes(bits_, dim), kWord},
                               {PlaneKind::scales, groups(dim) * size, size}};
  if (kind_ == CodecKind::affine) planes.push_back({PlaneKind::biases, groups(dim) * size, size});
  return planes;
}

std::int64_t VectorCodec::bytes_per_vector(std::int64_t dim) const {
  std::int64_t bytes = 0;
  for (const Plane& plane : planes(dim)) bytes += plane.bytes_per_vector;
  return bytes;
}

double Format::bits_per_element(std::int64_t key_dim, std::int64_t value_dim) const {
  const std::int64_t bytes = k.resolve(key_dim).value().bytes_per_vector(key_dim) +
                             v.resolve(value_dim).value().bytes_per_vector(value_dim);
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(key_dim + value_dim);
}

}  // namespace pagekv::inline v0
