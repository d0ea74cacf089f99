#include "client/model/export_weights.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "client/base/command.h"
#include "client/model/predict.h"
#include "client/base/worker.h"

int export_weights(struct context *ctx, int64_t id, const struct export_weights *w)
{
    char *folder = NULL, *argv[12] = { NULL };
    int n = 1, rc = job_folder(ctx, id, &folder);

    if (rc)
        return rc;
    argv[n++] = (char *)"--export";
    argv[n++] = (char *)w->form;
    argv[n++] = (char *)"--job-dir";
    argv[n++] = folder;
    argv[n++] = (char *)"--out";
    argv[n++] = (char *)w->out;
    if (w->checkpoint) {
        argv[n++] = (char *)"--checkpoint";
        argv[n++] = (char *)w->checkpoint;
    }
    rc = worker_run(argv);
    free(folder);
    return rc;
}
