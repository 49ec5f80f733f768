; Kernels one after the other, in compiled code, so that nothing lies between them; those that do not
; need each other side by side, on the threads of parallel loops.
;
; A step is four words: the kernel, int32_t (void **pointers, void *workspace), its pointers, its
; workspace, and how many steps from this one on run side by side; 0 and 1: it runs by itself.

declare i32 @lw_parallel_launch(ptr, ptr, i64, i64, ptr)

; Run `count` steps. 0: all ran; else the number of the step that failed, from 1, << 32 | its code; of
; steps that run side by side the number of the first.
define i64 @lw_run_steps(ptr %steps, i64 %count) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i1, %ran ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %begin, label %done
begin:
  %at = mul i64 %i, 4
  %step = getelementptr ptr, ptr %steps, i64 %at
  %group_at = getelementptr i64, ptr %step, i64 3
  %group = load i64, ptr %group_at
  %several = icmp sgt i64 %group, 1
  br i1 %several, label %together, label %alone
alone:
  %rc1 = call i32 @run_one(ptr %step)
  br label %ran
together:
  %rc2 = call i32 @lw_parallel_launch(ptr @run_some, ptr %step, i64 %group, i64 0, ptr null)
  br label %ran
ran:
  %rc = phi i32 [ %rc1, %alone ], [ %rc2, %together ]
  %width = phi i64 [ 1, %alone ], [ %group, %together ]
  %i1 = add i64 %i, %width
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %check, label %failed
failed:
  %number = add i64 %i, 1
  %high = shl i64 %number, 32
  %low = zext i32 %rc to i64
  %tagged = or i64 %high, %low
  ret i64 %tagged
done:
  ret i64 0
}

define internal i32 @run_one(ptr %step) {
  %pointers_at = getelementptr ptr, ptr %step, i64 1
  %workspace_at = getelementptr ptr, ptr %step, i64 2
  %kernel = load ptr, ptr %step
  %pointers = load ptr, ptr %pointers_at
  %workspace = load ptr, ptr %workspace_at
  %rc = call i32 %kernel(ptr %pointers, ptr %workspace)
  ret i32 %rc
}

; The body of a parallel loop over steps: those from `begin` up to `end`. Loops inside of their
; kernels find the pool taken, and run on the thread that they are on.
define internal i32 @run_some(i64 %begin, i64 %end, ptr %steps, ptr %workspace) {
entry:
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i1, %run ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %run, label %done
run:
  %at = mul i64 %i, 4
  %step = getelementptr ptr, ptr %steps, i64 %at
  %rc = call i32 @run_one(ptr %step)
  %i1 = add i64 %i, 1
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %check, label %failed
failed:
  ret i32 %rc
done:
  ret i32 0
}
