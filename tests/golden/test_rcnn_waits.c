/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_rcnn_waits.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cuda
 * The numbers of proposals and samples stay on the GPU: in a step the host never waits. */
#include "tests/stand/emu/emu.h"
#include "tests/golden/rcnn_net.h"

static void forward(struct net *n, enum tape_mode mode)
{
    const struct tape_hooks hooks = { n, grad_dest, grad_ready, NULL, NULL };
    const struct model_want want = { .raw = n->raw, .images_of_step = IMAGES, .shards_of_step = 1 };
    struct err err = { 0 };

    tape_begin(n->tape, mode, 1, mode == TAPE_TRAIN ? &hooks : NULL);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0 ||
        (mode == TAPE_TRAIN && tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0))
        fail_msg("%s", err.msg);
}

static void count_waits(const char *preset, bool tv, enum tape_mode mode)
{
    uint64_t waits, run;
    struct err err;
    struct net n;

    net_open(&n, cuda_backend_emu(), &plain_scene, preset, tv);
    for (int i = 0; i < 2; i++) /* they plan convolutions, and find how much memory a step takes */
        forward(&n, mode);
    assert_int_equal(n.dev->ops->sync(n.dev, &err), 0);
    waits = emu_waits();
    run = emu_tasks_run() + emu_tasks_queued();
    forward(&n, mode);
    assert_int_equal(emu_waits(), waits);
    assert_true(emu_tasks_run() + emu_tasks_queued() > run + 100);
    assert_int_equal(n.dev->ops->sync(n.dev, &err), 0);
    assert_true(emu_waits() > waits);
    net_close(&n);
}

static void a_step_waits_for_nothing(void **state)
{
    (void)state;
    count_waits("mask_rcnn_r18_fpn", false, TAPE_TRAIN);
    count_waits("mask_rcnn_r18_fpn", true, TAPE_TRAIN);
    count_waits("faster_rcnn_r18_fpn", false, TAPE_EVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_step_waits_for_nothing) };

    return cmocka_run_group_tests_name("rcnn_waits", tests, NULL, NULL);
}
