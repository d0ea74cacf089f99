/* cuda/cudnn_graph.h - one convolution as an operation graph of cuDNN: NHWC by strides, products summed in fp32. */
#pragma once
#include "cuda/cudnn_desc.h"
#include "cuda/plan_key.h"

/* Names of the tensors in a graph, by which run time gives their addresses. */
enum { CUDNN_X = 1, CUDNN_W, CUDNN_Y, CUDNN_BIAS, CUDNN_INNER };

/* What the graph makes of the key, and who may compute it. The plain form computes the result in the key's dtype. */
struct cudnn_form {
    bool add;     /* into what stands at the destination (beta = 1) */
    bool scratch; /* CONV_BWD_WEIGHTS: dw goes to scratch memory, which is aligned whatever the key says */
    bool widened; /* CONV_BWD_WEIGHTS: an fp32 inner result, written as fp32 by an identity. Else dw comes in the key's dtype */
    bool ready;   /* by an engine of the heuristics' own list that needs no compiler */
};

/* The finalized graph, owned by b; after an error b->status says which. handle may be NULL: the graph is only planned. */
cudnnBackendDescriptor_t cudnn_graph(struct cudnn_descs *b, cudnnHandle_t handle, const struct plan_key *key,
                                     const struct cudnn_form *form);
