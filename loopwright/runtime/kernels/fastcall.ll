; Calls of a kernel from CPython by its own protocol, METH_FASTCALL: as quick as those of its own
; functions. They run with the interpreter's lock held, and give it away while the kernel runs.
;
; `self` is an array of NumPy whose elements are the record below, words of 64 bits. Arrays are read
; at the places of NumPy's `PyArrayObject_fields`: data 16, number of dimensions 24 (32 bits),
; extents 32, dtype 56, flags 64 (32 bits). fastcall.py has tried them before anything comes here.
;
;  0 kernel, int32_t (void **pointers, void *workspace)    8 None
;  1 workspace; 0 while a call has it                      9 False
;  2 whether the kernel needs a workspace                 10 number of arrays
;  3 PyEval_SaveThread                                    11 number of pointers, behind them sizes
;  4 PyEval_RestoreThread                                 12 number of pairs that must not overlap
;  5 Py_IncRef                                            13 of the records of arrays, their address
;  6 PyLong_FromLong                                      14 of the pairs, their address
;  7 the type numpy.ndarray                               15 of the pointers, their address
; 16 the type NDArray                                     17 where an NDArray has its numpy.ndarray
;
; An array's record: dtype, number of dimensions, flags that it needs, bytes, address of extents.
; Results: None, it ran; False, nothing ran, since an argument is not what the record says or
; another call has the workspace; a number, the kernel failed with it.

define internal ptr @word(ptr %record, i64 %index) alwaysinline {
  %place = getelementptr i64, ptr %record, i64 %index
  %value = load ptr, ptr %place
  ret ptr %value
}

define internal i64 @number(ptr %record, i64 %index) alwaysinline {
  %place = getelementptr i64, ptr %record, i64 %index
  %value = load i64, ptr %place
  ret i64 %value
}

define internal ptr @record_of(ptr %self) alwaysinline {
  %place = getelementptr i8, ptr %self, i64 16
  %record = load ptr, ptr %place
  ret ptr %record
}

define internal ptr @give(ptr %record, i64 %index) alwaysinline {
  %object = call ptr @word(ptr %record, i64 %index)
  %hold = call ptr @word(ptr %record, i64 5)
  call void %hold(ptr %object)
  ret ptr %object
}

; The numpy.ndarray of an argument; null: it is something else.
define internal ptr @array_of(ptr %record, ptr %object) alwaysinline {
  %type_at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type_at
  %numpy = call ptr @word(ptr %record, i64 7)
  %plain = icmp eq ptr %type, %numpy
  br i1 %plain, label %itself, label %other
itself:
  ret ptr %object
other:
  %ours = call ptr @word(ptr %record, i64 16)
  %wrapped = icmp eq ptr %type, %ours
  br i1 %wrapped, label %unwrap, label %foreign
unwrap:
  %where = call i64 @number(ptr %record, i64 17)
  %inner_at = getelementptr i8, ptr %object, i64 %where
  %inner = load ptr, ptr %inner_at
  %unset = icmp eq ptr %inner, null
  br i1 %unset, label %foreign, label %check
check:
  %inner_type_at = getelementptr i8, ptr %inner, i64 8
  %inner_type = load ptr, ptr %inner_type_at
  %is_numpy = icmp eq ptr %inner_type, %numpy
  br i1 %is_numpy, label %found, label %foreign
found:
  ret ptr %inner
foreign:
  ret ptr null
}

; The first byte of an array that is as its record `%want` says; null: it is not.
define internal ptr @accepted(ptr %array, ptr %want) alwaysinline {
entry:
  %dtype_at = getelementptr i8, ptr %array, i64 56
  %dtype = load ptr, ptr %dtype_at
  %wanted_dtype = call ptr @word(ptr %want, i64 0)
  %same_dtype = icmp eq ptr %dtype, %wanted_dtype
  %ndim_at = getelementptr i8, ptr %array, i64 24
  %ndim32 = load i32, ptr %ndim_at
  %ndim = sext i32 %ndim32 to i64
  %wanted_ndim = call i64 @number(ptr %want, i64 1)
  %same_ndim = icmp eq i64 %ndim, %wanted_ndim
  %flags_at = getelementptr i8, ptr %array, i64 64
  %flags32 = load i32, ptr %flags_at
  %flags = zext i32 %flags32 to i64
  %wanted_flags = call i64 @number(ptr %want, i64 2)
  %common = and i64 %flags, %wanted_flags
  %has_flags = icmp eq i64 %common, %wanted_flags
  %kind = and i1 %same_dtype, %same_ndim
  %like = and i1 %kind, %has_flags
  br i1 %like, label %shapes, label %no
shapes:
  %extents_at = getelementptr i8, ptr %array, i64 32
  %extents = load ptr, ptr %extents_at
  %wanted = call ptr @word(ptr %want, i64 4)
  br label %check
check:
  %d = phi i64 [ 0, %shapes ], [ %d1, %equal ]
  %more = icmp slt i64 %d, %ndim
  br i1 %more, label %compare, label %yes
compare:
  %n = call i64 @number(ptr %extents, i64 %d)
  %m = call i64 @number(ptr %wanted, i64 %d)
  %same = icmp eq i64 %n, %m
  br i1 %same, label %equal, label %no
equal:
  %d1 = add i64 %d, 1
  br label %check
yes:
  %data_at = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data_at
  ret ptr %data
no:
  ret ptr null
}

; Whether two arguments share bytes of which one is written.
define internal i1 @overlap(ptr %record, ptr %pointers) alwaysinline {
entry:
  %pairs = call i64 @number(ptr %record, i64 12)
  %arrays = call ptr @word(ptr %record, i64 13)
  %list = call ptr @word(ptr %record, i64 14)
  br label %check
check:
  %p = phi i64 [ 0, %entry ], [ %p1, %apart ]
  %more = icmp slt i64 %p, %pairs
  br i1 %more, label %compare, label %no
compare:
  %left_at = mul i64 %p, 2
  %right_at = add i64 %left_at, 1
  %i = call i64 @number(ptr %list, i64 %left_at)
  %j = call i64 @number(ptr %list, i64 %right_at)
  %a = call i64 @number(ptr %pointers, i64 %i)
  %b = call i64 @number(ptr %pointers, i64 %j)
  %i5 = mul i64 %i, 5
  %j5 = mul i64 %j, 5
  %is = add i64 %i5, 3
  %js = add i64 %j5, 3
  %a_bytes = call i64 @number(ptr %arrays, i64 %is)
  %b_bytes = call i64 @number(ptr %arrays, i64 %js)
  %a_end = add i64 %a, %a_bytes
  %b_end = add i64 %b, %b_bytes
  %before = icmp ult i64 %a, %b_end
  %behind = icmp ult i64 %b, %a_end
  %shared = and i1 %before, %behind
  br i1 %shared, label %yes, label %apart
apart:
  %p1 = add i64 %p, 1
  br label %check
yes:
  ret i1 true
no:
  ret i1 false
}

; Run the kernel on these pointers; the call has the workspace meanwhile.
define internal ptr @run(ptr %record, ptr %pointers) {
entry:
  %space_at = getelementptr i64, ptr %record, i64 1
  %space = load ptr, ptr %space_at
  %needs = call i64 @number(ptr %record, i64 2)
  %without = icmp eq i64 %needs, 0
  %taken = icmp ne ptr %space, null
  %ready = or i1 %without, %taken
  br i1 %ready, label %go, label %busy
busy:
  %nothing = call ptr @give(ptr %record, i64 9)
  ret ptr %nothing
go:
  store ptr null, ptr %space_at
  %kernel = call ptr @word(ptr %record, i64 0)
  %save = call ptr @word(ptr %record, i64 3)
  %restore = call ptr @word(ptr %record, i64 4)
  %state = call ptr %save()
  %code = call i32 %kernel(ptr %pointers, ptr %space)
  call void %restore(ptr %state)
  store ptr %space, ptr %space_at
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %done, label %failed
done:
  %none = call ptr @give(ptr %record, i64 8)
  ret ptr %none
failed:
  %long = call ptr @word(ptr %record, i64 6)
  %wide = sext i32 %code to i64
  %result = call ptr %long(i64 %wide)
  ret ptr %result
}

; Check the arguments, and run.
define ptr @lw_call_1(ptr %self, ptr %args, i64 %given) {
entry:
  %record = call ptr @record_of(ptr %self)
  %count = call i64 @number(ptr %record, i64 10)
  %total = call i64 @number(ptr %record, i64 11)
  %arrays = call ptr @word(ptr %record, i64 13)
  %as_many = icmp eq i64 %given, %count
  br i1 %as_many, label %start, label %refused
start:
  %pointers = alloca i64, i64 %total
  %sizes = call ptr @word(ptr %record, i64 15)
  br label %check
check:
  %k = phi i64 [ 0, %start ], [ %k1, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %argument, label %values
argument:
  %object = call ptr @word(ptr %args, i64 %k)
  %array = call ptr @array_of(ptr %record, ptr %object)
  %foreign = icmp eq ptr %array, null
  br i1 %foreign, label %refused, label %compare
compare:
  %at = mul i64 %k, 5
  %want = getelementptr i64, ptr %arrays, i64 %at
  %data = call ptr @accepted(ptr %array, ptr %want)
  %unlike = icmp eq ptr %data, null
  br i1 %unlike, label %refused, label %next
next:
  %place = getelementptr i64, ptr %pointers, i64 %k
  store ptr %data, ptr %place
  %k1 = add i64 %k, 1
  br label %check
values:
  %v = phi i64 [ %count, %check ], [ %v1, %value ]
  %rest = icmp slt i64 %v, %total
  br i1 %rest, label %value, label %apart
value:
  %size = call i64 @number(ptr %sizes, i64 %v)
  %size_at = getelementptr i64, ptr %pointers, i64 %v
  store i64 %size, ptr %size_at
  %v1 = add i64 %v, 1
  br label %values
apart:
  %shared = call i1 @overlap(ptr %record, ptr %pointers)
  br i1 %shared, label %refused, label %go
go:
  %result = call ptr @run(ptr %record, ptr %pointers)
  ret ptr %result
refused:
  %nothing = call ptr @give(ptr %record, i64 9)
  ret ptr %nothing
}

; Run on the pointers of the record, which were checked before.
define ptr @lw_call_bound_1(ptr %self, ptr %unused) {
  %record = call ptr @record_of(ptr %self)
  %pointers = call ptr @word(ptr %record, i64 15)
  %result = call ptr @run(ptr %record, ptr %pointers)
  ret ptr %result
}
