/*
 * proxy-wasm 0.2.1 for C without a C library: its constants, every host function, and the
 * declarations of its callbacks. Written after the specification; depends on nothing but a compiler
 * that makes wasm32.
 *
 * A plugin defines the callbacks it wants (they are declared at the end, ready for export), among them
 * proxy_abi_version_0_2_1 and proxy_on_memory_allocate.
 */
#ifndef PROXY_WASM_H
#define PROXY_WASM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes a function visible to the host. */
#define PROXY_EXPORT(name) __attribute__((export_name(#name))) name
/* Declares a function of the host's. */
#define PROXY_IMPORT(name) __attribute__((import_module("env"), import_name(#name))) name

typedef enum {
    PROXY_LOG_TRACE = 0,
    PROXY_LOG_DEBUG = 1,
    PROXY_LOG_INFO = 2,
    PROXY_LOG_WARN = 3,
    PROXY_LOG_ERROR = 4,
    PROXY_LOG_CRITICAL = 5,
} proxy_log_level_t;

typedef enum {
    PROXY_OK = 0,
    PROXY_NOT_FOUND = 1,
    PROXY_BAD_ARGUMENT = 2,
    PROXY_SERIALIZATION_FAILURE = 3,
    PROXY_PARSE_FAILURE = 4,
    PROXY_INVALID_MEMORY_ACCESS = 6,
    PROXY_EMPTY = 7,
    PROXY_CAS_MISMATCH = 8,
    PROXY_INTERNAL_FAILURE = 10,
    PROXY_UNIMPLEMENTED = 12,
} proxy_status_t;

typedef enum {
    PROXY_CONTINUE = 0,
    PROXY_PAUSE = 1,
} proxy_action_t;

typedef enum {
    PROXY_HTTP_REQUEST_BODY = 0,
    PROXY_HTTP_RESPONSE_BODY = 1,
    PROXY_DOWNSTREAM_DATA = 2,
    PROXY_UPSTREAM_DATA = 3,
    PROXY_HTTP_CALL_RESPONSE_BODY = 4,
    PROXY_GRPC_CALL_MESSAGE = 5,
    PROXY_VM_CONFIGURATION = 6,
    PROXY_PLUGIN_CONFIGURATION = 7,
    PROXY_FOREIGN_FUNCTION_ARGUMENTS = 8,
} proxy_buffer_type_t;

typedef enum {
    PROXY_HTTP_REQUEST_HEADERS = 0,
    PROXY_HTTP_REQUEST_TRAILERS = 1,
    PROXY_HTTP_RESPONSE_HEADERS = 2,
    PROXY_HTTP_RESPONSE_TRAILERS = 3,
    PROXY_GRPC_CALL_INITIAL_METADATA = 4,
    PROXY_GRPC_CALL_TRAILING_METADATA = 5,
    PROXY_HTTP_CALL_RESPONSE_HEADERS = 6,
    PROXY_HTTP_CALL_RESPONSE_TRAILERS = 7,
} proxy_map_type_t;

typedef enum {
    PROXY_PEER_UNKNOWN = 0,
    PROXY_PEER_LOCAL = 1,
    PROXY_PEER_REMOTE = 2,
} proxy_peer_type_t;

typedef enum {
    PROXY_STREAM_HTTP_REQUEST = 0,
    PROXY_STREAM_HTTP_RESPONSE = 1,
    PROXY_STREAM_DOWNSTREAM = 2,
    PROXY_STREAM_UPSTREAM = 3,
} proxy_stream_type_t;

typedef enum {
    PROXY_COUNTER = 0,
    PROXY_GAUGE = 1,
    PROXY_HISTOGRAM = 2,
} proxy_metric_type_t;

/* What the host hands over is allocated with proxy_on_memory_allocate and is the plugin's to free. */

/* Contexts */
proxy_status_t PROXY_IMPORT(proxy_done)(void);
proxy_status_t PROXY_IMPORT(proxy_set_effective_context)(uint32_t context_id);

/* Log, clock, timer */
proxy_status_t PROXY_IMPORT(proxy_log)(proxy_log_level_t level, const char *message, size_t size);
proxy_status_t PROXY_IMPORT(proxy_get_log_level)(proxy_log_level_t *level);
proxy_status_t PROXY_IMPORT(proxy_get_current_time_nanoseconds)(uint64_t *time);
proxy_status_t PROXY_IMPORT(proxy_set_tick_period_milliseconds)(uint32_t period);

/* Buffers */
proxy_status_t PROXY_IMPORT(proxy_set_buffer_bytes)(
    proxy_buffer_type_t buffer, size_t start, size_t size, const uint8_t *value, size_t value_size);
proxy_status_t PROXY_IMPORT(proxy_get_buffer_bytes)(
    proxy_buffer_type_t buffer, size_t start, size_t size_max, uint8_t **value, size_t *value_size);
proxy_status_t PROXY_IMPORT(proxy_get_buffer_status)(
    proxy_buffer_type_t buffer, size_t *size, uint32_t *unused);

/* Header fields. Maps are serialized: a count, that many pairs of lengths (all 32-bit little
 * endian), then names and values, each followed by a zero byte. */
proxy_status_t PROXY_IMPORT(proxy_get_header_map_size)(proxy_map_type_t map, size_t *size);
proxy_status_t PROXY_IMPORT(proxy_get_header_map_pairs)(
    proxy_map_type_t map, uint8_t **pairs, size_t *pairs_size);
proxy_status_t PROXY_IMPORT(proxy_set_header_map_pairs)(
    proxy_map_type_t map, const uint8_t *pairs, size_t pairs_size);
proxy_status_t PROXY_IMPORT(proxy_get_header_map_value)(
    proxy_map_type_t map, const char *name, size_t name_size, uint8_t **value, size_t *value_size);
proxy_status_t PROXY_IMPORT(proxy_add_header_map_value)(
    proxy_map_type_t map, const char *name, size_t name_size, const uint8_t *value,
    size_t value_size);
proxy_status_t PROXY_IMPORT(proxy_replace_header_map_value)(
    proxy_map_type_t map, const char *name, size_t name_size, const uint8_t *value,
    size_t value_size);
proxy_status_t PROXY_IMPORT(proxy_remove_header_map_value)(
    proxy_map_type_t map, const char *name, size_t name_size);

/* Streams */
proxy_status_t PROXY_IMPORT(proxy_continue_stream)(proxy_stream_type_t stream);
proxy_status_t PROXY_IMPORT(proxy_close_stream)(proxy_stream_type_t stream);
proxy_status_t PROXY_IMPORT(proxy_get_status)(
    uint32_t *code, const char **message, size_t *message_size);

/* A response without asking upstream. `fields` is a serialized map; `grpc_status` is UINT32_MAX for HTTP. */
proxy_status_t PROXY_IMPORT(proxy_send_local_response)(
    uint32_t status, const char *details, size_t details_size, const uint8_t *body,
    size_t body_size, const uint8_t *fields, size_t fields_size, uint32_t grpc_status);

/* HTTP and gRPC calls */
proxy_status_t PROXY_IMPORT(proxy_http_call)(
    const char *upstream, size_t upstream_size, const uint8_t *fields, size_t fields_size,
    const uint8_t *body, size_t body_size, const uint8_t *trailers, size_t trailers_size,
    uint32_t timeout_ms, uint32_t *call_id);
proxy_status_t PROXY_IMPORT(proxy_grpc_call)(
    const char *upstream, size_t upstream_size, const char *service, size_t service_size,
    const char *method, size_t method_size, const uint8_t *metadata, size_t metadata_size,
    const uint8_t *message, size_t message_size, uint32_t timeout_ms, uint32_t *call_id);
proxy_status_t PROXY_IMPORT(proxy_grpc_stream)(
    const char *upstream, size_t upstream_size, const char *service, size_t service_size,
    const char *method, size_t method_size, const uint8_t *metadata, size_t metadata_size,
    uint32_t *stream_id);
proxy_status_t PROXY_IMPORT(proxy_grpc_send)(
    uint32_t stream_id, const uint8_t *message, size_t message_size, bool end_stream);
proxy_status_t PROXY_IMPORT(proxy_grpc_cancel)(uint32_t call_or_stream_id);
proxy_status_t PROXY_IMPORT(proxy_grpc_close)(uint32_t call_or_stream_id);

/* Shared data and queues */
proxy_status_t PROXY_IMPORT(proxy_set_shared_data)(
    const char *key, size_t key_size, const uint8_t *value, size_t value_size, uint32_t cas);
proxy_status_t PROXY_IMPORT(proxy_get_shared_data)(
    const char *key, size_t key_size, uint8_t **value, size_t *value_size, uint32_t *cas);
proxy_status_t PROXY_IMPORT(proxy_register_shared_queue)(
    const char *name, size_t name_size, uint32_t *queue_id);
proxy_status_t PROXY_IMPORT(proxy_resolve_shared_queue)(
    const char *vm_id, size_t vm_id_size, const char *name, size_t name_size, uint32_t *queue_id);
proxy_status_t PROXY_IMPORT(proxy_enqueue_shared_queue)(
    uint32_t queue_id, const uint8_t *value, size_t value_size);
proxy_status_t PROXY_IMPORT(proxy_dequeue_shared_queue)(
    uint32_t queue_id, uint8_t **value, size_t *value_size);

/* Metrics */
proxy_status_t PROXY_IMPORT(proxy_define_metric)(
    proxy_metric_type_t type, const char *name, size_t name_size, uint32_t *metric_id);
proxy_status_t PROXY_IMPORT(proxy_record_metric)(uint32_t metric_id, uint64_t value);
proxy_status_t PROXY_IMPORT(proxy_increment_metric)(uint32_t metric_id, int64_t delta);
proxy_status_t PROXY_IMPORT(proxy_get_metric)(uint32_t metric_id, uint64_t *value);

/* Properties; the parts of a path are separated by zero bytes. */
proxy_status_t PROXY_IMPORT(proxy_get_property)(
    const char *path, size_t path_size, uint8_t **value, size_t *value_size);
proxy_status_t PROXY_IMPORT(proxy_set_property)(
    const char *path, size_t path_size, const uint8_t *value, size_t value_size);

/* Foreign functions */
proxy_status_t PROXY_IMPORT(proxy_call_foreign_function)(
    const char *name, size_t name_size, const uint8_t *arguments, size_t arguments_size,
    uint8_t **results, size_t *results_size);

/* Callbacks: define those you want. */
void PROXY_EXPORT(proxy_abi_version_0_2_1)(void);
void *PROXY_EXPORT(proxy_on_memory_allocate)(size_t size);
void PROXY_EXPORT(proxy_on_context_create)(uint32_t context_id, uint32_t parent_context_id);
bool PROXY_EXPORT(proxy_on_done)(uint32_t context_id);
void PROXY_EXPORT(proxy_on_log)(uint32_t context_id);
void PROXY_EXPORT(proxy_on_delete)(uint32_t context_id);
bool PROXY_EXPORT(proxy_on_vm_start)(uint32_t unused, size_t configuration_size);
bool PROXY_EXPORT(proxy_on_configure)(uint32_t plugin_context_id, size_t configuration_size);
void PROXY_EXPORT(proxy_on_tick)(uint32_t plugin_context_id);
proxy_action_t PROXY_EXPORT(proxy_on_new_connection)(uint32_t context_id);
proxy_action_t PROXY_EXPORT(proxy_on_downstream_data)(
    uint32_t context_id, size_t data_size, bool end_of_stream);
void PROXY_EXPORT(proxy_on_downstream_connection_close)(
    uint32_t context_id, proxy_peer_type_t peer);
proxy_action_t PROXY_EXPORT(proxy_on_upstream_data)(
    uint32_t context_id, size_t data_size, bool end_of_stream);
void PROXY_EXPORT(proxy_on_upstream_connection_close)(uint32_t context_id, proxy_peer_type_t peer);
proxy_action_t PROXY_EXPORT(proxy_on_request_headers)(
    uint32_t context_id, size_t header_count, bool end_of_stream);
proxy_action_t PROXY_EXPORT(proxy_on_request_body)(
    uint32_t context_id, size_t body_size, bool end_of_stream);
proxy_action_t PROXY_EXPORT(proxy_on_request_trailers)(uint32_t context_id, size_t trailer_count);
proxy_action_t PROXY_EXPORT(proxy_on_response_headers)(
    uint32_t context_id, size_t header_count, bool end_of_stream);
proxy_action_t PROXY_EXPORT(proxy_on_response_body)(
    uint32_t context_id, size_t body_size, bool end_of_stream);
proxy_action_t PROXY_EXPORT(proxy_on_response_trailers)(uint32_t context_id, size_t trailer_count);
void PROXY_EXPORT(proxy_on_http_call_response)(
    uint32_t plugin_context_id, uint32_t call_id, size_t header_count, size_t body_size,
    size_t trailer_count);
void PROXY_EXPORT(proxy_on_grpc_receive_initial_metadata)(
    uint32_t plugin_context_id, uint32_t call_id, size_t element_count);
void PROXY_EXPORT(proxy_on_grpc_receive)(
    uint32_t plugin_context_id, uint32_t call_id, size_t message_size);
void PROXY_EXPORT(proxy_on_grpc_receive_trailing_metadata)(
    uint32_t plugin_context_id, uint32_t call_id, size_t element_count);
void PROXY_EXPORT(proxy_on_grpc_close)(
    uint32_t plugin_context_id, uint32_t call_id, uint32_t status_code);
void PROXY_EXPORT(proxy_on_queue_ready)(uint32_t plugin_context_id, uint32_t queue_id);
void PROXY_EXPORT(proxy_on_foreign_function)(
    uint32_t plugin_context_id, uint32_t function_id, size_t arguments_size);

#endif
