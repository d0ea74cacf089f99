#include "cuda/cudnn_desc.h" /* SPDX-License-Identifier: Apache-2.0 */

cudnnBackendDescriptor_t cudnn_desc_new(struct cudnn_descs *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (b->status == CUDNN_STATUS_SUCCESS && b->n == CUDNN_DESCS)
        b->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    b->status = b->api->cudnnBackendCreateDescriptor(type, &d);
    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    return b->d[b->n++] = d;
}

void cudnn_desc_set(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *value)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->api->cudnnBackendSetAttribute(d, name, type, count, value);
}

void cudnn_desc_set_int(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value)
{
    cudnn_desc_set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

void cudnn_desc_set_desc(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendDescriptor_t value)
{
    cudnn_desc_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void cudnn_desc_finalize(struct cudnn_descs *b, cudnnBackendDescriptor_t d)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->api->cudnnBackendFinalize(d);
}

void cudnn_descs_free(struct cudnn_descs *b)
{
    while (b->n > 0)
        b->api->cudnnBackendDestroyDescriptor(b->d[--b->n]);
}
