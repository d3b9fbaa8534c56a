// Lists of formats as options take them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pagekv_tool {

// The formats of a list with commas between them. The comma of "k=...,v=..." separates nothing.
std::vector<std::string> split_formats(std::string_view list);
// Of an option that was given several times.
std::vector<std::string> split_formats(const std::vector<std::string>& lists);

// Refuses lists in which there is what Format::parse() does not read, with its message.
const CLI::Validator& formats_validator();

}  // namespace pagekv_tool
