// The library's version. CMake, pkg-config and `pagekv --version` all read it from here.
#pragma once

#define PAGEKV_VERSION_MAJOR 0
#define PAGEKV_VERSION_MINOR 1
#define PAGEKV_VERSION_PATCH 0
#define PAGEKV_VERSION_STRING "0.1.0"
