/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/family.h - a family of operations is a list of rows X(family,
 * name, (parameters), (arguments)). Everything with one entry an operation is made from it: the struct of functions
 * below, both backends' tables, stopwatches, and the test that each operation is covered. */
#pragma once

#define OPS_ROW(family, name, params, args) int(*name) params;
/* Makes struct conv_ops from CONV_OPS. Operations queue work and return 0 or a code with *err filled; shapes are
 * checked by the layer that calls. */
#define OPS_FAMILY(family, LIST) \
    struct family##_ops {        \
        LIST(OPS_ROW)            \
    };
