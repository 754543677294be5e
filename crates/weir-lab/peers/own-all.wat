;; A plugin that does nothing, on Weir's own interface: one hook, for which the whole
;; request is laid out.
(module
  (memory (export "memory") 4)
  (func (export "weir_abi_1"))
  (func (export "weir_buffer") (param $kind i32) (param $size i32) (result i32)
    (if (i32.gt_u (local.get $size) (i32.const 65536)) (then (return (i32.const 0))))
    (i32.add (i32.const 1024) (i32.mul (local.get $kind) (i32.const 65536))))
  (func (export "weir_on_request") (param $frame i32) (result i64) (i64.const 0)))
