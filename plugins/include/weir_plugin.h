/*
 * Weir's own plugin interface, version 1, for C: its constants, the frame, every host function, and a
 * builder of edit lists. docs/manual/plugin-interface.md is the specification. Depends on nothing but
 * a compiler that makes wasm32 (clang --target=wasm32 -nostdlib, or wasi-sdk).
 *
 * A plugin writes WEIR_PLUGIN(frame_bytes, body_bytes, result_bytes) once, which gives it its buffers,
 * and the hooks that it has:
 *
 *     WEIR_HOOK(weir_on_response)(const weir_frame_t *frame) {
 *         static uint8_t room[256];
 *         weir_edits_t edits = weir_edits(room, sizeof room);
 *         weir_set(&edits, WEIR_TEXT("x-hello"), WEIR_TEXT("world"));
 *         return weir_done(&edits);
 *     }
 */
#ifndef WEIR_PLUGIN_H
#define WEIR_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes a function visible to the host. */
#define WEIR_EXPORT(name) __attribute__((export_name(#name))) name
/* Declares a function of the host's. */
#define WEIR_IMPORT(name) __attribute__((import_module("weir"), import_name(#name))) weir_##name
/* Begins a hook: WEIR_HOOK(weir_on_request)(const weir_frame_t *frame) { … } */
#define WEIR_HOOK(name) int64_t name(const weir_frame_t *); int64_t WEIR_EXPORT(name)

/* ---- what a hook is shown ------------------------------------------------------------------- */

/* Bytes in the plugin's memory. */
typedef struct {
    const uint8_t *at;
    uint32_t len;
} weir_slice_t;

/* A line of a header or trailer section. Names are in lower case. */
typedef struct {
    weir_slice_t name;
    weir_slice_t value;
} weir_field_t;

typedef struct {
    uint32_t count;
    const weir_field_t *at;
} weir_fields_t;

enum weir_hook {
    WEIR_CONNECTION = 1,
    WEIR_REQUEST = 2,
    WEIR_REQUEST_BODY = 3,
    WEIR_REQUEST_TRAILERS = 4,
    WEIR_LOOKUP = 5,
    WEIR_HIT = 6,
    WEIR_MISS = 7,
    WEIR_STORE = 8,
    WEIR_RESPONSE = 9,
    WEIR_RESPONSE_BODY = 10,
    WEIR_RESPONSE_TRAILERS = 11,
    WEIR_LOG = 12,
    WEIR_TICK = 13,
    WEIR_CALL = 14,
};

enum weir_flag {
    WEIR_FLAG_TLS = 1,     /* the request came over TLS */
    WEIR_FLAG_END = 2,     /* nothing follows: no content, or the last piece */
    WEIR_FLAG_HTTP2 = 4,   /* the request came over HTTP/2 */
    WEIR_FLAG_FILL = 8,    /* the response is seen before it is stored */
    WEIR_FLAG_FAILED = 16, /* the call failed; the body says why */
    WEIR_FLAG_AGAIN = 32,  /* the hook is called again after it held the request */
};

/* Parts of a frame: what weir_wants returns for a hook. */
enum weir_part {
    WEIR_PART_LINE = 1,
    WEIR_PART_REQUEST = 2,
    WEIR_PART_STATUS = 4,
    WEIR_PART_RESPONSE = 8,
    WEIR_PART_BODY = 16,
};

typedef struct {
    uint32_t hook;
    uint32_t flags;
    uint64_t number; /* of the request, unique in the process */
    uint64_t note;
    weir_slice_t method;
    weir_slice_t authority;
    weir_slice_t target; /* path and query */
    uint8_t client[16];  /* IPv6, or IPv4 mapped into it; 0 if unknown */
    uint16_t client_port;
    uint16_t frame_bytes; /* 136, or more in later versions */
    uint32_t status;
    weir_fields_t request;
    weir_fields_t response; /* in weir_on_call the answer's */
    weir_fields_t trailers;
    weir_slice_t body;
    uint64_t body_offset; /* bytes of the body before this piece */
    int64_t ttl_ms;
    uint64_t age_ms;
    uint32_t call;
    uint32_t reserved;
} weir_frame_t;

#ifdef __wasm32__
_Static_assert(sizeof(weir_frame_t) == 136, "the frame is what version 1 says");
_Static_assert(offsetof(weir_frame_t, client) == 48, "the frame is what version 1 says");
_Static_assert(offsetof(weir_frame_t, request) == 72, "the frame is what version 1 says");
_Static_assert(offsetof(weir_frame_t, body) == 96, "the frame is what version 1 says");
_Static_assert(offsetof(weir_frame_t, call) == 128, "the frame is what version 1 says");
#endif

/* A string literal as two arguments: address and length. */
#define WEIR_TEXT(literal) (const uint8_t *)(literal), sizeof(literal) - 1

static inline bool weir_is(weir_slice_t slice, const uint8_t *at, size_t len) {
    if (slice.len != len) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (slice.at[i] != at[i]) {
            return false;
        }
    }
    return true;
}

/* The first value of a field, whose name is in lower case; its address is null if there is none. */
static inline weir_slice_t weir_field(weir_fields_t fields, const uint8_t *name, size_t len) {
    for (uint32_t i = 0; i < fields.count; i++) {
        if (weir_is(fields.at[i].name, name, len)) {
            return fields.at[i].value;
        }
    }
    return (weir_slice_t){0};
}

/* ---- what it wants changed ------------------------------------------------------------------ */

enum weir_op {
    WEIR_OP_SET = 1,
    WEIR_OP_ADD = 2,
    WEIR_OP_REMOVE = 3,
    WEIR_OP_METHOD = 4,
    WEIR_OP_TARGET = 5,
    WEIR_OP_AUTHORITY = 6,
    WEIR_OP_STATUS = 7,
    WEIR_OP_ANSWER = 8,
    WEIR_OP_BODY = 9,
    WEIR_OP_WANT = 10,
    WEIR_OP_NOTE = 11,
    WEIR_OP_HOLD = 12,
    WEIR_OP_KEY = 13,
    WEIR_OP_CACHE = 14,
    WEIR_OP_TTL = 15,
    WEIR_OP_UPSTREAM = 16,
    WEIR_OP_TRAILER = 17,
    WEIR_OP_CLOSE = 18,
    WEIR_OP_ROUTE = 19,
    WEIR_OP_NO_STORE = 20,
    WEIR_OP_RESUME = 21,
    WEIR_OP_KEEP = 22,
    WEIR_OP_PIECE = 23,
    WEIR_OP_VERDICT = 24,
};

enum weir_want { WEIR_WANT_NOTHING = 0, WEIR_WANT_PIECES = 1, WEIR_WANT_WHOLE = 2 };
enum weir_cache { WEIR_CACHE_USUAL = 0, WEIR_CACHE_PASS = 1, WEIR_CACHE_VALIDATE = 2 };

/* A list that is being built. The memory must last until the next hook: static, not on the stack. */
typedef struct {
    uint8_t *at;
    size_t room;
    size_t len;
    bool is_full; /* something did not fit */
} weir_edits_t;

static inline weir_edits_t weir_edits(uint8_t *memory, size_t room) {
    return (weir_edits_t){.at = memory, .room = room};
}

/* A record. */
static inline void weir_edit(
    weir_edits_t *edits, uint8_t op, uint8_t flags, const void *name, size_t name_len,
    const void *value, size_t value_len) {
    uint8_t *at = edits->at + edits->len;
    if (name_len > UINT16_MAX || edits->room - edits->len < 8 ||
        edits->room - edits->len - 8 < name_len + value_len) {
        edits->is_full = true;
        return;
    }
    uint16_t name_len_16 = (uint16_t)name_len;
    uint32_t value_len_32 = (uint32_t)value_len;
    at[0] = op;
    at[1] = flags;
    __builtin_memcpy(at + 2, &name_len_16, 2);
    __builtin_memcpy(at + 4, &value_len_32, 4);
    if (name_len > 0) {
        __builtin_memcpy(at + 8, name, name_len);
    }
    if (value_len > 0) {
        __builtin_memcpy(at + 8 + name_len, value, value_len);
    }
    edits->len += 8 + name_len + value_len;
}

static inline void weir_edit_u32(weir_edits_t *edits, uint8_t op, uint32_t value) {
    weir_edit(edits, op, 0, NULL, 0, &value, 4);
}

static inline void weir_edit_u64(weir_edits_t *edits, uint8_t op, uint64_t value) {
    weir_edit(edits, op, 0, NULL, 0, &value, 8);
}

/* A value that stays where it is until the host has read it: until the next hook. */
static inline void weir_edit_at(weir_edits_t *edits, uint8_t op, const void *value, size_t len) {
    uint32_t span[2] = {(uint32_t)(uintptr_t)value, (uint32_t)len};
    weir_edit(edits, op, 1, NULL, 0, span, 8);
}

static inline void weir_set(
    weir_edits_t *edits, const uint8_t *name, size_t name_len, const uint8_t *value, size_t len) {
    weir_edit(edits, WEIR_OP_SET, 0, name, name_len, value, len);
}

static inline void weir_add(
    weir_edits_t *edits, const uint8_t *name, size_t name_len, const uint8_t *value, size_t len) {
    weir_edit(edits, WEIR_OP_ADD, 0, name, name_len, value, len);
}

static inline void weir_remove(weir_edits_t *edits, const uint8_t *name, size_t name_len) {
    weir_edit(edits, WEIR_OP_REMOVE, 0, name, name_len, NULL, 0);
}

static inline void weir_answer(weir_edits_t *edits, uint32_t status) {
    weir_edit_u32(edits, WEIR_OP_ANSWER, status);
}

static inline void weir_body(weir_edits_t *edits, const void *content, size_t len) {
    weir_edit_at(edits, WEIR_OP_BODY, content, len);
}

static inline void weir_piece(weir_edits_t *edits, uint32_t offset, uint32_t len) {
    uint32_t span[2] = {offset, len};
    weir_edit(edits, WEIR_OP_PIECE, 0, NULL, 0, span, 8);
}

static inline void weir_keep(weir_edits_t *edits, uint32_t len) {
    weir_edit_u32(edits, WEIR_OP_KEEP, len);
}

static inline void weir_want(weir_edits_t *edits, enum weir_want want) {
    weir_edit_u32(edits, WEIR_OP_WANT, want);
}

static inline void weir_note(weir_edits_t *edits, uint64_t note) {
    weir_edit_u64(edits, WEIR_OP_NOTE, note);
}

static inline void weir_hold(weir_edits_t *edits, uint32_t ms) {
    weir_edit_u32(edits, WEIR_OP_HOLD, ms);
}

/* A hook's result: the list, or a failure if it did not fit. */
static inline int64_t weir_done(const weir_edits_t *edits) {
    if (edits->is_full) {
        return -1;
    }
    return edits->len == 0 ? 0 : (int64_t)(uintptr_t)edits->at << 32 | (int64_t)edits->len;
}

/* ---- what the host does --------------------------------------------------------------------- */

/* Errors, as negative results. */
enum weir_error {
    WEIR_NOT_FOUND = -1,
    WEIR_BAD_ARGUMENT = -2,
    WEIR_NOT_ALLOWED = -3,
    WEIR_BAD_MEMORY = -4,
    WEIR_LIMIT = -5,
    WEIR_FAILED = -6,
    WEIR_MISMATCH = -7,
    WEIR_EMPTY = -8,
};

enum weir_level { WEIR_TRACE, WEIR_DEBUG, WEIR_INFO, WEIR_WARN, WEIR_ERROR, WEIR_CRITICAL };
enum weir_metric_kind { WEIR_COUNTER, WEIR_GAUGE, WEIR_HISTOGRAM };

typedef struct {
    uint64_t status;
    int64_t ttl_ms;
    uint64_t age_ms;
    uint64_t hits;
    uint64_t body_bytes;
} weir_stored_t;

/* Where an int64_t result that is not negative lies. */
static inline weir_slice_t weir_result(int64_t result) {
    return (weir_slice_t){(const uint8_t *)(uintptr_t)(result >> 32), (uint32_t)result};
}

#ifdef __wasm32__
int32_t WEIR_IMPORT(log)(uint32_t level, const uint8_t *text, size_t len);
int64_t WEIR_IMPORT(now)(void);
int32_t WEIR_IMPORT(random)(void *to, size_t len);
int32_t WEIR_IMPORT(tick)(uint32_t ms);
int64_t WEIR_IMPORT(property)(const uint8_t *path, size_t len);
int32_t WEIR_IMPORT(property_set)(
    const uint8_t *path, size_t path_len, const uint8_t *value, size_t len);
int32_t WEIR_IMPORT(call)(const uint8_t *request, size_t len, uint32_t timeout_ms);
/* The number of a value that is not there: whoever sets with it is the first, or fails. */
#define WEIR_ABSENT UINT32_MAX
int64_t WEIR_IMPORT(shared_get)(const uint8_t *key, size_t len, uint32_t *cas);
int32_t WEIR_IMPORT(shared_set)(
    const uint8_t *key, size_t key_len, const uint8_t *value, size_t len, uint32_t cas);
int32_t WEIR_IMPORT(queue_open)(const uint8_t *name, size_t len);
int32_t WEIR_IMPORT(queue_push)(uint32_t queue, const uint8_t *item, size_t len);
int64_t WEIR_IMPORT(queue_pop)(uint32_t queue);
int32_t WEIR_IMPORT(metric)(uint32_t kind, const uint8_t *name, size_t len);
int32_t WEIR_IMPORT(metric_add)(uint32_t metric, int64_t delta);
int32_t WEIR_IMPORT(metric_set)(uint32_t metric, uint64_t value);
int32_t WEIR_IMPORT(metric_get)(uint32_t metric, uint64_t *to);
int32_t WEIR_IMPORT(cache_query)(const uint8_t *url, size_t len, weir_stored_t *to);
int64_t WEIR_IMPORT(cache_fields)(const uint8_t *url, size_t len);
int64_t WEIR_IMPORT(cache_read)(const uint8_t *url, size_t len, uint64_t offset, uint32_t max);
int32_t WEIR_IMPORT(cache_inject)(
    const uint8_t *url, size_t url_len, const uint8_t *response, size_t len, uint64_t ttl_ms);
int32_t WEIR_IMPORT(cache_expire)(const uint8_t *url, size_t len);
int32_t WEIR_IMPORT(cache_purge)(const uint8_t *url, size_t len);
#endif

/* ---- what a plugin exports ------------------------------------------------------------------ */

/* The marker and the buffers, of fixed sizes. A frame takes 16 KiB if heads are of usual size; a
 * piece of a body has 256 KiB at most, one that is wanted whole up to 16 MiB. What does not fit is a
 * failure of the plugin. */
#define WEIR_PLUGIN(frame_bytes, body_bytes, result_bytes)                                          \
    void weir_abi_1(void);                                                                          \
    void WEIR_EXPORT(weir_abi_1)(void) {}                                                           \
    void *weir_buffer(uint32_t kind, size_t size);                                                  \
    void *WEIR_EXPORT(weir_buffer)(uint32_t kind, size_t size) {                                    \
        static _Alignas(16) uint8_t frame[frame_bytes];                                             \
        static _Alignas(16) uint8_t body[body_bytes];                                               \
        static _Alignas(16) uint8_t results[result_bytes];                                          \
        switch (kind) {                                                                             \
        case 0: return size <= sizeof frame ? frame : NULL;                                         \
        case 1: return size <= sizeof body ? body : NULL;                                           \
        case 2: return size <= sizeof results ? results : NULL;                                     \
        default: return NULL;                                                                       \
        }                                                                                           \
    }

#endif
