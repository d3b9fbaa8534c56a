// Symbol visibility of the library. Everything not marked PAGEKV_API is hidden.
#pragma once

#if defined(PAGEKV_STATIC)
#define PAGEKV_API
#else
#define PAGEKV_API __attribute__((visibility("default")))
#endif
