/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cudnn_graph.h - one convolution as an operation graph of cuDNN: NHWC
 * by strides, products summed in fp32. */
#pragma once
#include "cuda/cudnn_desc.h"
#include "cuda/plan_key.h"

/* Names of the tensors in a graph; a run gives an address for each name. */
enum { CUDNN_X = 1, CUDNN_W, CUDNN_Y, CUDNN_BIAS, CUDNN_INNER };

/* Does the result come in bf16 although dw must be fp32? It then goes to separate memory, which is always aligned. */
bool cudnn_rounds_dw(const struct conv_key *k);
/* The finalized graph, owned by b; after an error b->status tells which. handle may be NULL: the graph is then only
 * planned. The result has the key's dtype. */
cudnnBackendDescriptor_t cudnn_graph(struct cudnn_descs *b, cudnnHandle_t handle, const struct plan_key *key);
