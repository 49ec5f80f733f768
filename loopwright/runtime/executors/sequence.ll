; Kernels one after the other, in compiled code, so that nothing lies between them.
;
; A step is three words: the kernel, int32_t (void **pointers, void *workspace), and its arguments.

; Run `count` steps. 0: all ran; else the number of the step that failed, from 1, << 32 | its code.
define i64 @lw_run_steps(ptr %steps, i64 %count) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i1, %call ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %call, label %done
call:
  %i1 = add i64 %i, 1
  %at = mul i64 %i, 3
  %step = getelementptr ptr, ptr %steps, i64 %at
  %pointers_at = getelementptr ptr, ptr %step, i64 1
  %workspace_at = getelementptr ptr, ptr %step, i64 2
  %kernel = load ptr, ptr %step
  %pointers = load ptr, ptr %pointers_at
  %workspace = load ptr, ptr %workspace_at
  %rc = call i32 %kernel(ptr %pointers, ptr %workspace)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %check, label %failed
failed:
  %high = shl i64 %i1, 32
  %low = zext i32 %rc to i64
  %tagged = or i64 %high, %low
  ret i64 %tagged
done:
  ret i64 0
}
