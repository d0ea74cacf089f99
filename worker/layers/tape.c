#include "worker/layers/tape.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grow.h"
#include "proto/host/memory.h"
#include "worker/core/arena.h"
#include "worker/ops/families.h"

enum { HOST_CHUNK = 256 << 10, MAX_CONSTANTS = 16 };

/* Arena memory that several values share (a raw output and its normalised view). */
struct storage {
    void *mem;
    int refs;
};

struct chunk {
    struct chunk *next;
    size_t used, room;
    max_align_t data[];
};

struct tape {
    struct device *dev;
    struct arena *arena;
    enum tape_mode mode;
    int nshards, nparams;
    const struct tape_hooks *hooks;
    struct node *nodes;
    int count;
    size_t room;
    int *uses;      /* per parameter: uses in forward minus uses in backward */
    int *norm_uses; /* per normalisation */
    int nnorms;     /* room of norm_uses */
    bool *written;  /* per parameter: its destination holds a gradient of this wave */
    struct chunk *host, *host_at;
    struct {
        float value;
        int c;
        float *data;
    } constant[MAX_CONSTANTS];
    int nconstants;
    struct storage *turned; /* of tape_grad_turn(): freed when the record is done */
    int rc;
    struct err err;
    void (*done)(void *arg); /* tape_tell(), or NULL */
    void *done_arg;
};

struct tape *tape_new(struct device *dev, struct arena *arena, int nparams)
{
    struct tape *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->dev = dev;
    t->arena = arena;
    t->nparams = nparams;
    t->uses = calloc((size_t)nparams + 1, sizeof *t->uses);
    t->written = calloc((size_t)nparams + 1, sizeof *t->written);
    if (!t->uses || !t->written) {
        tape_free(t);
        return NULL;
    }
    return t;
}

void tape_free(struct tape *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->nconstants; i++)
        t->dev->ops->free(t->dev, t->constant[i].data);
    for (struct chunk *c = t->host, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(t->nodes);
    free(t->uses);
    free(t->written);
    free(t->norm_uses);
    free(t);
}

void tape_tell(struct tape *t, void (*done)(void *arg), void *arg)
{
    t->done = done;
    t->done_arg = arg;
}

static void tell(const struct tape *t)
{
    if (t->done)
        t->done(t->done_arg);
}

void tape_begin(struct tape *t, enum tape_mode mode, int nshards, const struct tape_hooks *hooks)
{
    arena_reset(t->arena);
    for (struct chunk *c = t->host; c; c = c->next)
        c->used = 0;
    t->host_at = t->host;
    t->mode = mode;
    t->nshards = nshards;
    t->hooks = hooks;
    t->count = 0;
    t->rc = 0;
    memset(t->uses, 0, (size_t)t->nparams * sizeof *t->uses);
    memset(t->written, 0, (size_t)t->nparams * sizeof *t->written);
    for (int i = 0; i < t->nnorms; i++)
        t->norm_uses[i] = 0;
}

struct device *tape_device(const struct tape *t)
{
    return t->dev;
}

enum tape_mode tape_mode_of(const struct tape *t)
{
    return t->mode;
}

int tape_shards(const struct tape *t)
{
    return t->nshards;
}

const struct tape_hooks *tape_hooks_of(const struct tape *t)
{
    return t->hooks;
}

bool tape_failed(const struct tape *t)
{
    return t->rc < 0;
}

struct err *tape_err(struct tape *t)
{
    return &t->err;
}

int tape_fail(struct tape *t, int rc, const struct err *err)
{
    if (rc < 0 && t->rc >= 0) {
        t->rc = rc;
        if (err != &t->err)
            t->err = *err;
    }
    return rc;
}

int tape_status(const struct tape *t, struct err *err)
{
    if (t->rc < 0 && err)
        *err = t->err;
    return t->rc;
}

/* ---- memory ---- */

void *tape_host(struct tape *t, size_t bytes)
{
    size_t need = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);

    while (t->host_at && t->host_at->used + need > t->host_at->room)
        t->host_at = t->host_at->next;
    if (!t->host_at) {
        size_t room = need > HOST_CHUNK ? need : HOST_CHUNK;
        struct chunk *c = malloc(sizeof *c + room);

        if (!c)
            memory_out(); /* a few hundred KiB of bookkeeping: without them the process cannot continue */
        c->used = 0;
        c->room = room;
        c->next = NULL;
        if (!t->host) {
            t->host = c;
        } else {
            struct chunk *last = t->host;

            while (last->next)
                last = last->next;
            last->next = c;
        }
        t->host_at = c;
    }
    void *p = (char *)t->host_at->data + t->host_at->used;
    t->host_at->used += need;
    return memset(p, 0, need);
}

/* Rounds up, so that it is never 0 for a refused size. */
static size_t mib(size_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

/* shape is that of all local shards, or NULL. */
static void *device_mem(struct tape *t, size_t bytes, const char *what, const struct tensor *shape)
{
    void *p = t->rc < 0 ? NULL : arena_alloc(t->arena, bytes);
    char dims[64] = "";

    if (p || t->rc < 0)
        return p;
    if (shape)
        snprintf(dims, sizeof dims, " [%d shards, %dx%dx%dx%d]", t->nshards, shape->n, shape->h, shape->w, shape->c);
    tape_fail(t,
              err_set(&t->err, ERR_DEVICE,
                      "out of memory: %s%s needs %zu MiB, %zu MiB are in use; fewer images a shard, more train.waves or a smaller "
                      "model.size would fit",
                      what, dims, mib(bytes), arena_held(t->arena) >> 20),
              &t->err);
    return NULL;
}

void *tape_device_mem(struct tape *t, size_t bytes, const char *what)
{
    return device_mem(t, bytes, what, NULL);
}

static void unref(struct tape *t, struct storage **mem)
{
    if (*mem && --(*mem)->refs == 0)
        arena_release(t->arena, (*mem)->mem);
    *mem = NULL;
}

static void storage_drop(struct tape *t, struct value *v)
{
    unref(t, &v->mem);
    unref(t, &v->plain_mem);
}

static struct storage *storage_new(struct tape *t, void *mem)
{
    struct storage *s = tape_host(t, sizeof *s);

    *s = (struct storage){ mem, 1 };
    return s;
}

static struct value *value_new(struct tape *t, bool needs_grad)
{
    struct value *v = tape_host(t, sizeof *v);

    v->x = tape_host(t, (size_t)t->nshards * sizeof *v->x);
    v->grad = tape_host(t, (size_t)t->nshards * sizeof *v->grad);
    v->needs_grad = needs_grad && t->mode == TAPE_TRAIN;
    return v;
}

static size_t bytes_of(const struct tensor *x)
{
    return tensor_pixels(x) * (size_t)x->stride * dtype_bytes(x->dtype);
}

static size_t total_bytes(const struct tape *t, const struct tensor *x)
{
    size_t n = 0;

    for (int s = 0; s < t->nshards; s++)
        n += bytes_of(&x[s]);
    return n;
}

/* Lays the shards of x one after another into mem. */
static void lay_out(const struct tape *t, struct tensor *ret, const struct tensor *x, char *mem)
{
    for (int s = 0; s < t->nshards; s++) {
        ret[s] = x[s];
        ret[s].data = mem;
        mem += bytes_of(&x[s]);
    }
}

static struct value *value_of(struct tape *t, const struct tensor *shape, enum dtype dtype, bool dense, bool needs_grad, const char *what)
{
    struct value *v = value_new(t, needs_grad);
    void *mem;

    assert(!v->needs_grad || dtype == DTYPE_F32 || dtype == DTYPE_BF16);
    for (int s = 0; s < t->nshards; s++) {
        assert(shape[s].n >= 0 && shape[s].h >= 1 && shape[s].w >= 1 && shape[s].c == shape[0].c && shape[s].c >= 1);
        v->x[s] = shape[s];
        v->x[s].dtype = dtype;
        v->x[s].stride = dense ? shape[s].c : device_stride(t->dev, shape[s].c);
    }
    mem = device_mem(t, total_bytes(t, v->x), what, shape);
    if (!mem)
        return NULL;
    v->mem = storage_new(t, mem);
    lay_out(t, v->x, v->x, mem);
    return v;
}

struct value *tape_value(struct tape *t, const struct tensor *shape, bool needs_grad, const char *what)
{
    return value_of(t, shape, shape->dtype, shape->dtype != t->dev->dtype, needs_grad, what);
}

struct value *tape_dense(struct tape *t, const struct tensor *shape, const char *what)
{
    return value_of(t, shape, shape->dtype, true, false, what);
}

struct value *tape_reshape(struct tape *t, struct value *v, const struct tensor *shape)
{
    struct value *a = tape_alias(t, v, NULL, v->needs_grad);

    for (int s = 0; s < t->nshards; s++) {
        assert(!v->act && v->x[s].stride == v->x[s].c && tensor_count(&v->x[s]) == tensor_count(&shape[s]));
        a->x[s] = shape[s];
        a->x[s].data = v->x[s].data;
        a->x[s].stride = shape[s].c;
    }
    return a;
}

/* Dense: padding would be larger than an image's pixel. */
struct value *tape_input(struct tape *t, const struct tensor *x)
{
    struct value *v;

    if (x[0].dtype == DTYPE_F32 && t->dev->dtype != DTYPE_F32) {
        v = value_of(t, x, t->dev->dtype, true, false, "images");
        return v && tape_fail(t, t->dev->on->map->cast(t->dev, v->x, x, t->nshards, &t->err), &t->err) >= 0 ? v : NULL;
    }
    v = value_new(t, false);
    memcpy(v->x, x, (size_t)t->nshards * sizeof *x);
    return v;
}

struct value *tape_alias(struct tape *t, struct value *v, struct affine *act, bool needs_grad)
{
    struct value *a = value_new(t, needs_grad);

    memcpy(a->x, v->x, (size_t)t->nshards * sizeof *v->x);
    a->act = act;
    a->mem = v->mem;
    if (a->mem)
        a->mem->refs++;
    return a;
}

struct operand *tape_operands(struct tape *t, const struct value *v)
{
    struct operand *o = tape_host(t, (size_t)t->nshards * sizeof *o);

    for (int s = 0; s < t->nshards; s++) {
        o[s].x = v->x[s];
        if (v->act)
            o[s].act = v->act[s];
    }
    return o;
}

const struct tensor *tape_plain(struct tape *t, struct value *v)
{
    struct operand *o;
    void *mem;

    if (!v->act || v->plain)
        return v->act ? v->plain : v->x;
    o = tape_operands(t, v);
    mem = device_mem(t, total_bytes(t, v->x), "activation", v->x);
    if (!mem)
        return NULL;
    v->plain = tape_host(t, (size_t)t->nshards * sizeof *v->plain);
    v->plain_mem = storage_new(t, mem);
    lay_out(t, v->plain, v->x, mem);
    if (tape_fail(t, t->dev->on->map->act_fwd(t->dev, ACT_LINEAR, v->plain, o, t->nshards, &t->err), &t->err) < 0)
        return NULL;
    return v->plain;
}

struct operand *tape_conv_operands(struct tape *t, struct value *v)
{
    struct operand *o = tape_operands(t, v);
    const struct tensor *plain = t->dev->pending ? v->x : tape_plain(t, v);

    for (int s = 0; s < t->nshards && plain != v->x; s++) {
        if (!plain)
            return NULL;
        o[s] = (struct operand){ .x = plain[s] };
    }
    return o;
}

void tape_drop(struct tape *t, struct value *v)
{
    if (v)
        storage_drop(t, v);
}

const float *tape_constant(struct tape *t, float f, int c)
{
    float *host, *mem;

    for (int i = 0; i < t->nconstants; i++)
        if (t->constant[i].value == f && t->constant[i].c >= c)
            return t->constant[i].data;
    assert(t->nconstants < MAX_CONSTANTS);
    c = c < 4096 ? 4096 : c;
    mem = t->dev->ops->alloc(t->dev, (size_t)c * sizeof *mem);
    host = malloc((size_t)c * sizeof *host);
    if (!mem || !host)
        memory_out(); /* 16 KiB */
    for (int i = 0; i < c; i++)
        host[i] = f;
    tape_fail(t, t->dev->ops->upload(t->dev, mem, host, (size_t)c * sizeof *host, &t->err), &t->err);
    free(host);
    t->constant[t->nconstants].value = f;
    t->constant[t->nconstants].c = c;
    t->constant[t->nconstants++].data = mem;
    return mem;
}

/* ---- records ---- */

static void node_reads(struct node *n, struct storage *mem)
{
    if (!mem)
        return; /* the caller keeps it */
    mem->refs++;
    n->reads[n->nreads++] = mem;
}

static struct node *node_new(struct tape *t)
{
    if (!GROW(t->nodes, t->room, t->count + 1))
        memory_out(); /* as tape_host() */
    return &t->nodes[t->count++];
}

void tape_record(struct tape *t, int (*backward)(struct tape *, struct node *, struct err *), struct value *out, struct value *const *in,
                 int nin, unsigned reads, void *ctx)
{
    struct node *n;

    tell(t);
    if (!out->needs_grad)
        return;
    n = node_new(t);
    *n = (struct node){ .backward = backward, .out = out, .nin = nin, .ctx = ctx };
    n->in = tape_host(t, (size_t)nin * sizeof *n->in);
    n->reads = tape_host(t, ((size_t)nin + 1) * sizeof *n->reads);
    for (int i = 0; i < nin; i++) {
        n->in[i] = in[i];
        if (reads & READS_CONV_INPUTS)
            node_reads(n, in[i]->plain && !t->dev->pending ? in[i]->plain_mem : in[i]->mem); /* as tape_conv_operands() */
        else if (reads & READS_INPUTS)
            node_reads(n, in[i]->mem);
    }
    if (reads & READS_OUTPUT)
        node_reads(n, out->mem);
}

void tape_use(struct tape *t, const struct param *p)
{
    if (t->mode == TAPE_TRAIN && param_trainable(p))
        t->uses[p->index]++;
}

int tape_norm_use(struct tape *t, int index)
{
    if (index >= t->nnorms) {
        int room = 2 * index + 64;
        int *more = realloc(t->norm_uses, (size_t)room * sizeof *more);

        if (!more)
            memory_out(); /* as tape_host() */
        memset(more + t->nnorms, 0, (size_t)(room - t->nnorms) * sizeof *more);
        t->norm_uses = more;
        t->nnorms = room;
    }
    return t->norm_uses[index]++;
}

int tape_norm_uses(const struct tape *t, int index)
{
    return index < t->nnorms ? t->norm_uses[index] : 0;
}

float *const *tape_grad_dest(struct tape *t, const struct param *p, float *ret_beta, struct err *err)
{
    float **dest = tape_host(t, (size_t)t->nshards * sizeof *dest);
    bool before = false;

    for (int s = 0; s < t->nshards; s++) {
        dest[s] = t->hooks->grad_dest(t->hooks->arg, p, s, &before);
        if (!dest[s]) {
            err_set(err, ERR_DEVICE, "out of memory: gradient of %s, %zu MiB", p->name, mib(p->count * sizeof(float)));
            return NULL;
        }
    }
    *ret_beta = before || t->written[p->index] ? 1.0f : 0.0f;
    t->written[p->index] = true;
    return dest;
}

int tape_grad_done(struct tape *t, const struct param *p, struct err *err)
{
    assert(t->uses[p->index] > 0);
    if (--t->uses[p->index] > 0)
        return 0;
    return t->hooks->grad_ready(t->hooks->arg, p, err);
}

static int grad_new(struct tape *t, struct value *v, struct err *err)
{
    size_t bytes = total_bytes(t, v->x);
    void *mem = arena_alloc(t->arena, bytes);

    if (!mem)
        return err_set(err, ERR_DEVICE, "out of memory: a gradient of %zu MiB, %zu MiB are in use", mib(bytes), arena_held(t->arena) >> 20);
    lay_out(t, v->grad, v->x, mem);
    v->grad_mem = storage_new(t, mem);
    return 0;
}

/* True if tape_grad_pooled() set its gradient. */
static bool is_pooled(const struct value *v)
{
    return v->grad[0].h != v->x[0].h;
}

void tape_takes_pooled(struct tape *t, const struct value *v)
{
    if (t->count > 0 && t->nodes[t->count - 1].out == v)
        t->nodes[t->count - 1].takes_pooled = true;
}

bool tape_grad_pooled(struct tape *t, const struct node *n)
{
    struct value *in = n->in[0];

    if (!t->dev->pooled_grads || in->grad_mem || n == t->nodes || n[-1].out != in || !n[-1].takes_pooled)
        return false;
    memcpy(in->grad, n->out->grad, (size_t)t->nshards * sizeof *in->grad);
    in->grad_mem = n->out->grad_mem;
    in->grad_mem->refs++;
    return true;
}

int tape_grad_turn(struct tape *t, struct value *v, const struct tensor **ret_from, struct err *err)
{
    struct tensor *from;

    *ret_from = v->grad;
    if (v->grad_mem->refs == 1 && !is_pooled(v))
        return 0;
    from = tape_host(t, (size_t)t->nshards * sizeof *from);
    memcpy(from, v->grad, (size_t)t->nshards * sizeof *from);
    if (v->grad_mem->refs == 1)
        t->turned = v->grad_mem, v->grad_mem = NULL; /* it is read until this record is done */
    else
        unref(t, &v->grad_mem);
    *ret_from = from;
    return grad_new(t, v, err);
}

int tape_grad(struct tape *t, struct value *v, float *ret_beta, struct err *err)
{
    const struct tensor *from;
    int rc;

    *ret_beta = v->grad_mem ? 1.0f : 0.0f;
    if (!v->grad_mem)
        return grad_new(t, v, err);
    rc = tape_grad_turn(t, v, &from, err);
    return rc < 0 || from == v->grad ? rc : t->dev->on->map->act_bwd(t->dev, ACT_LINEAR, v->grad, 0.0f, from, v->x, t->nshards, err);
}

int tape_grad_hand_on(struct tape *t, struct value *from, struct value *to, struct err *err)
{
    struct tensor *given = tape_host(t, (size_t)t->nshards * sizeof *given);
    float beta;
    int rc;

    for (int s = 0; s < t->nshards; s++) {
        given[s] = to->x[s];
        given[s].data = from->grad[s].data;
    }
    if (to->grad_mem) {
        rc = tape_grad(t, to, &beta, err);
        return rc < 0 ? rc : t->dev->on->map->act_bwd(t->dev, ACT_LINEAR, to->grad, beta, given, to->x, t->nshards, err);
    }
    memcpy(to->grad, given, (size_t)t->nshards * sizeof *to->grad);
    to->grad_mem = from->grad_mem;
    to->grad_mem->refs++;
    return 0;
}

/* Sets a gradient to zero if the parameter was not used, or only in branches without a reader. */
static int zero_grad(struct tape *t, const struct param *p, struct err *err)
{
    float beta;
    float *const *dest = tape_grad_dest(t, p, &beta, err);
    int rc = 0;

    if (!dest)
        return err->code;
    for (int s = 0; s < t->nshards && rc >= 0 && beta == 0.0f; s++)
        rc = t->dev->ops->zero(t->dev, dest[s], p->count * sizeof(float), err);
    if (rc >= 0)
        rc = t->hooks->grad_ready(t->hooks->arg, p, err);
    return rc;
}

int tape_backward(struct tape *t, struct param *const *params, int nparams, struct err *err)
{
    assert(t->mode == TAPE_TRAIN);
    for (int i = t->count - 1; i >= 0 && t->rc >= 0; i--) {
        struct node *n = &t->nodes[i];

        if (n->out->grad_mem)
            tape_fail(t, n->backward(t, n, &t->err), &t->err);
        unref(t, &n->out->grad_mem);
        unref(t, &t->turned);
        for (int k = 0; k < n->nreads; k++)
            unref(t, &n->reads[k]);
        storage_drop(t, n->out);
        tell(t);
    }
    for (int i = nparams - 1; i >= 0 && t->rc >= 0; i--) {
        const struct param *p = params[i];

        if (!param_trainable(p))
            continue;
        if (t->uses[p->index] > 0 || !t->written[p->index])
            tape_fail(t, zero_grad(t, p, &t->err), &t->err);
    }
    return tape_status(t, err);
}
