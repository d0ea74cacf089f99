/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cudnn_desc.h - backend descriptors of cuDNN in bunches. A bunch owns
 * its descriptors and keeps the first error, so that code that writes down a graph needs no branch a line. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "cuda/libs.h"

enum { CUDNN_DESCS = 96 };

struct cudnn_descs {
    const struct cudnn_api *api;
    cudnnStatus_t status; /* of the first call that failed; later calls do nothing */
    int n;
    cudnnBackendDescriptor_t d[CUDNN_DESCS];
};

static inline void cudnn_descs_init(struct cudnn_descs *b, const struct cudnn_api *api)
{
    b->api = api;
    b->status = CUDNN_STATUS_SUCCESS;
    b->n = 0;
}

/* Descriptors live until the bunch is freed. NULL after an error. */
cudnnBackendDescriptor_t cudnn_desc_new(struct cudnn_descs *b, cudnnBackendDescriptorType_t type);
void cudnn_desc_set(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *value);
void cudnn_desc_set_int(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value);
void cudnn_desc_set_desc(struct cudnn_descs *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendDescriptor_t value);
void cudnn_desc_finalize(struct cudnn_descs *b, cudnnBackendDescriptor_t d);
void cudnn_descs_free(struct cudnn_descs *b);
