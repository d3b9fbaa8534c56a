#include "cpu/value_bytes.h"

namespace pagekv::inline v0::internal {

namespace {

// The first of the four neighbouring elements of a chunk whose bytes are [4 * four, 4 * four + 4):
// interleaving takes the same fours of all 16-byte blocks together, and 16 elements in order are
// wanted of them.
constexpr std::size_t first_of_four(std::size_t four) {
  return 16 * (four % 4) + 4 * (four / 4);
}

// With all codes of a row's byte in one, or with a byte for each.
ValueBytes make_form(std::size_t codec, bool together) {
  ValueBytes form;
  form.bits = is_affine(codec) ? kAffineWidths[codec - kFirstAffine]
                               : kCodebookWidths[codec - kFirstCodebook];
  form.per_byte = together && (form.bits == 2 || form.bits == 4) ? 8 / form.bits : 1;
  form.spread = form.per_byte == 1 && form.bits != 8;
  form.table = code_table(codec);
  const auto bits = static_cast<std::size_t>(form.spread ? form.bits : 8);
  form.chunk = static_cast<std::int64_t>(8 * bits);
  for (std::size_t byte = 0; byte < form.order.size(); ++byte) {
    const std::size_t bit = first_of_four(byte / 4) * bits;
    const std::size_t from = bit / 8 + byte % 4;
    form.order[byte] = static_cast<std::uint8_t>(from < 8 * bits ? from : 0);
    form.shifts[byte] = static_cast<std::uint8_t>(byte / 4 % 2 * 32 + bit % 8 + byte % 4 * bits);
  }
  return form;
}

std::array<std::array<ValueBytes, 2>, kCodecs> make_forms() {
  std::array<std::array<ValueBytes, 2>, kCodecs> forms;
  for (std::size_t codec = kFirstAffine; codec < kCodecs; ++codec) {
    forms[codec] = {make_form(codec, false), make_form(codec, true)};
  }
  return forms;
}

}  // namespace

const ValueBytes& value_bytes(std::size_t codec, const SideShape& shape) {
  static const std::array<std::array<ValueBytes, 2>, kCodecs> forms = make_forms();
  const bool together = shape.group % (16 * forms[codec][1].per_byte) == 0;
  return forms[codec][together ? 1 : 0];
}

}  // namespace pagekv::inline v0::internal
