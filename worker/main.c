/* SPDX-License-Identifier: Apache-2.0 */ /* worker/main.c - detd-worker, with our own networks. */
#include "worker/models/builtin.h"
#include "worker/worker.h"

int main(int argc, char **argv)
{
    return worker_main(argc, argv, &models_builtin);
}
