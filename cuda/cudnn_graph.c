#include "cuda/cudnn_graph.h" /* SPDX-License-Identifier: Apache-2.0 */

#define ATTR(name) CUDNN_ATTR_##name

/* A graph under construction. */
struct sketch {
    struct cudnn_descs *b;
    const struct plan_key *key;
    cudnnDataType_t dtype; /* of x, w, y */
};

static cudnnBackendDescriptor_t tensor(struct sketch *g, int uid, const int64_t dim[4], int64_t pitch, cudnnDataType_t dtype, int64_t align)
{
    cudnnBackendDescriptor_t t = cudnn_desc_new(g->b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t stride[4] = { dim[2] * dim[3] * pitch, 1, dim[3] * pitch, pitch };
    bool inner = uid == CUDNN_INNER;

    cudnn_desc_set_int(g->b, t, ATTR(TENSOR_UNIQUE_ID), uid);
    cudnn_desc_set(g->b, t, ATTR(TENSOR_DATA_TYPE), CUDNN_TYPE_DATA_TYPE, 1, &dtype);
    cudnn_desc_set(g->b, t, ATTR(TENSOR_DIMENSIONS), CUDNN_TYPE_INT64, 4, dim);
    cudnn_desc_set(g->b, t, ATTR(TENSOR_STRIDES), CUDNN_TYPE_INT64, 4, stride);
    cudnn_desc_set_int(g->b, t, ATTR(TENSOR_BYTE_ALIGNMENT), align);
    if (inner)
        cudnn_desc_set(g->b, t, ATTR(TENSOR_IS_VIRTUAL), CUDNN_TYPE_BOOLEAN, 1, &inner);
    cudnn_desc_finalize(g->b, t);
    return t;
}

/* The descriptor of x or dx. */
static cudnnBackendDescriptor_t image(struct sketch *g)
{
    const struct conv_key *k = &g->key->conv;
    int64_t dim[4] = { k->n, k->c, k->h, k->w };

    return tensor(g, CUDNN_X, dim, k->x_stride, g->dtype, g->key->align_x);
}

/* The descriptor of y or dy; with uid CUDNN_INNER the fp32 sum before the bias. */
static cudnnBackendDescriptor_t result(struct sketch *g, int uid)
{
    const struct conv_key *k = &g->key->conv;
    int64_t dim[4] = { k->n, k->k, plan_key_out_h(k), plan_key_out_w(k) };

    if (uid == CUDNN_INNER)
        return tensor(g, uid, dim, k->k, CUDNN_DATA_FLOAT, PLAN_ALIGN);
    return tensor(g, uid, dim, k->y_stride, g->dtype, g->key->align_y);
}

/* The descriptor of w or dw. */
static cudnnBackendDescriptor_t filter(struct sketch *g)
{
    const struct conv_key *k = &g->key->conv;
    int64_t dim[4] = { k->k, k->c, k->r, k->s };

    return tensor(g, CUDNN_W, dim, k->c, g->dtype, cudnn_rounds_dw(k) ? PLAN_ALIGN : g->key->align_w);
}

static cudnnBackendDescriptor_t geometry(struct sketch *g)
{
    const struct conv_key *k = &g->key->conv;
    cudnnBackendDescriptor_t c = cudnn_desc_new(g->b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t sum = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t pad[2] = { k->pad, k->pad }, stride[2] = { k->stride, k->stride }, dilation[2] = { 1, 1 };

    cudnn_desc_set_int(g->b, c, ATTR(CONVOLUTION_SPATIAL_DIMS), 2);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_COMP_TYPE), CUDNN_TYPE_DATA_TYPE, 1, &sum);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_CONV_MODE), CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_PRE_PADDINGS), CUDNN_TYPE_INT64, 2, pad);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_POST_PADDINGS), CUDNN_TYPE_INT64, 2, pad);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_FILTER_STRIDES), CUDNN_TYPE_INT64, 2, stride);
    cudnn_desc_set(g->b, c, ATTR(CONVOLUTION_DILATIONS), CUDNN_TYPE_INT64, 2, dilation);
    cudnn_desc_finalize(g->b, c);
    return c;
}

/* The three directions differ only in names. */
static const struct conv_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} names[] = {
    [CONV_FWD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, ATTR(OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
                   ATTR(OPERATION_CONVOLUTION_FORWARD_X), ATTR(OPERATION_CONVOLUTION_FORWARD_W), ATTR(OPERATION_CONVOLUTION_FORWARD_Y),
                   ATTR(OPERATION_CONVOLUTION_FORWARD_ALPHA), ATTR(OPERATION_CONVOLUTION_FORWARD_BETA) },
    [CONV_BWD_DATA] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, ATTR(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
                        ATTR(OPERATION_CONVOLUTION_BWD_DATA_DX), ATTR(OPERATION_CONVOLUTION_BWD_DATA_W),
                        ATTR(OPERATION_CONVOLUTION_BWD_DATA_DY), ATTR(OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
                        ATTR(OPERATION_CONVOLUTION_BWD_DATA_BETA) },
    [CONV_BWD_WEIGHTS] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, ATTR(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
                           ATTR(OPERATION_CONVOLUTION_BWD_FILTER_X), ATTR(OPERATION_CONVOLUTION_BWD_FILTER_DW),
                           ATTR(OPERATION_CONVOLUTION_BWD_FILTER_DY), ATTR(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA),
                           ATTR(OPERATION_CONVOLUTION_BWD_FILTER_BETA) },
};

static cudnnBackendDescriptor_t convolution(struct sketch *g, cudnnBackendDescriptor_t y)
{
    const struct conv_names *n = &names[g->key->conv.dir];
    cudnnBackendDescriptor_t op, geo = geometry(g), x = image(g), w = filter(g);
    float alpha = 1.0f, beta = g->key->conv.add ? 1.0f : 0.0f;

    op = cudnn_desc_new(g->b, n->type);
    cudnn_desc_set_desc(g->b, op, n->conv, geo);
    cudnn_desc_set_desc(g->b, op, n->x, x);
    cudnn_desc_set_desc(g->b, op, n->w, w);
    cudnn_desc_set_desc(g->b, op, n->y, y);
    cudnn_desc_set(g->b, op, n->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    cudnn_desc_set(g->b, op, n->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    cudnn_desc_finalize(g->b, op);
    return op;
}

/* y = sum + bias, formed in fp32. */
static cudnnBackendDescriptor_t addition(struct sketch *g, cudnnBackendDescriptor_t sum, cudnnBackendDescriptor_t bias,
                                         cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t pw = cudnn_desc_new(g->b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnDataType_t math = CUDNN_DATA_FLOAT;

    cudnn_desc_set(g->b, pw, ATTR(POINTWISE_MODE), CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    cudnn_desc_set(g->b, pw, ATTR(POINTWISE_MATH_PREC), CUDNN_TYPE_DATA_TYPE, 1, &math);
    cudnn_desc_finalize(g->b, pw);
    op = cudnn_desc_new(g->b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cudnn_desc_set_desc(g->b, op, ATTR(OPERATION_POINTWISE_PW_DESCRIPTOR), pw);
    cudnn_desc_set_desc(g->b, op, ATTR(OPERATION_POINTWISE_XDESC), sum);
    cudnn_desc_set_desc(g->b, op, ATTR(OPERATION_POINTWISE_BDESC), bias);
    cudnn_desc_set_desc(g->b, op, ATTR(OPERATION_POINTWISE_YDESC), y);
    cudnn_desc_finalize(g->b, op);
    return op;
}

static int operations(struct sketch *g, cudnnBackendDescriptor_t op[2])
{
    const struct conv_key *k = &g->key->conv;
    cudnnBackendDescriptor_t y = result(g, CUDNN_Y), sum, bias;
    int64_t dim[4] = { 1, k->k, 1, 1 };

    if (!k->bias) {
        op[0] = convolution(g, y);
        return 1;
    }
    sum = result(g, CUDNN_INNER);
    bias = tensor(g, CUDNN_BIAS, dim, k->k, g->dtype, g->key->align_w);
    op[0] = convolution(g, sum);
    op[1] = addition(g, sum, bias, y);
    return 2;
}

bool cudnn_rounds_dw(const struct conv_key *k)
{
    return k->dir == CONV_BWD_WEIGHTS && k->dtype == DTYPE_BF16;
}

cudnnBackendDescriptor_t cudnn_graph(struct cudnn_descs *b, cudnnHandle_t handle, const struct plan_key *key)
{
    struct sketch g = { b, key, key->conv.dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT };
    cudnnBackendDescriptor_t op[2], graph;
    int nops = operations(&g, op);

    graph = cudnn_desc_new(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle)
        cudnn_desc_set(b, graph, ATTR(OPERATIONGRAPH_HANDLE), CUDNN_TYPE_HANDLE, 1, &handle);
    cudnn_desc_set(b, graph, ATTR(OPERATIONGRAPH_OPS), CUDNN_TYPE_BACKEND_DESCRIPTOR, nops, op);
    cudnn_desc_finalize(b, graph);
    return graph;
}
