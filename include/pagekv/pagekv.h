// Everything at once.
#pragma once

#include "pagekv/attend.h"
#include "pagekv/codec.h"
#include "pagekv/device.h"
#include "pagekv/dtype.h"
#include "pagekv/error.h"
#include "pagekv/executor.h"
#include "pagekv/layout.h"
#include "pagekv/prefix_index.h"
#include "pagekv/rows.h"
#include "pagekv/sequence.h"
#include "pagekv/snapshot.h"
#include "pagekv/step.h"
#include "pagekv/store.h"
#include "pagekv/version.h"
#include "pagekv/view.h"
