/* SPDX-License-Identifier: Apache-2.0 */ /* tests/search/prove/toy_worker.c - detd-worker with the toy family of models
 * (tests/stand/toy), to be proved as any other. */
#include "tests/stand/toy/registry.h"
#include "worker/worker.h"

int main(int argc, char **argv)
{
    return worker_main(argc, argv, &toy_models);
}
