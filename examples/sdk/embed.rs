// Embed one sentence of token ids: embed minilm.svm 101 7592 2088 102
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};

// The part of svm.h that this program uses.
const SVM_TAG_TENSOR: i32 = 5;
const SVM_DTYPE_I64: i32 = 5;

#[repr(C)]
struct Error {
    code: i32,
    function: i32,
    pc: i64,
    source: *const c_char,
    message: [c_char; 1024],
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    dtype: i32,
    rank: i32,
    sizes: [i64; 16],
    strides: *const i64,
}

#[repr(C)]
struct Value {
    tag: i32,
    origin: i32,
    origin_index: i32,
    reserved: i32,
    integer: i64,
    number: f64,
    text: *const c_char,
    length: i64,
    tensor: Tensor,
    owner: *mut c_void,
}

#[repr(C)]
struct Program {
    _private: [u8; 0],
}

#[link(name = "svm")]
extern "C" {
    fn svm_open_path(path: *const c_char, options: *const c_void, program: *mut *mut Program, error: *mut Error) -> i32;
    fn svm_main_function(program: *const Program) -> i32;
    fn svm_call(
        program: *mut Program, function: i32, inputs: *const Value, n_inputs: i32, allocator: *const c_void,
        outputs: *mut Value, n_outputs: i32, error: *mut Error,
    ) -> i32;
    fn svm_value_release(value: *mut Value);
    fn svm_close(program: *mut Program);
}

/// A loaded program, closed when it is dropped.
struct Model(*mut Program);

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { svm_close(self.0) }
    }
}

fn message(error: &Error) -> String {
    unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy().into_owned()
}

fn tensor(ids: &mut [i64]) -> Value {
    let mut value: Value = unsafe { std::mem::zeroed() };
    value.tag = SVM_TAG_TENSOR;
    value.tensor.data = ids.as_mut_ptr().cast();
    value.tensor.dtype = SVM_DTYPE_I64;
    value.tensor.rank = 2;
    value.tensor.sizes[0] = 1;
    value.tensor.sizes[1] = ids.len() as i64;
    value
}

impl Model {
    fn open(path: &str) -> Result<Model, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut program = null_mut();
        let mut error: Error = unsafe { std::mem::zeroed() };
        match unsafe { svm_open_path(path.as_ptr(), null(), &mut program, &mut error) } {
            0 => Ok(Model(program)),
            _ => Err(message(&error)),
        }
    }

    fn embed(&self, ids: &mut [i64]) -> Result<Vec<f32>, String> {
        let mut mask = vec![1i64; ids.len()];
        let inputs = [tensor(ids), tensor(&mut mask)];
        unsafe {
            let mut output: Value = std::mem::zeroed();
            let mut error: Error = std::mem::zeroed();
            let main = svm_main_function(self.0);
            if svm_call(self.0, main, inputs.as_ptr(), 2, null(), &mut output, 1, &mut error) != 0 {
                return Err(message(&error));
            }
            let data = std::slice::from_raw_parts(output.tensor.data as *const f32, output.tensor.sizes[1] as usize);
            let vector = data.to_vec();
            svm_value_release(&mut output);
            Ok(vector)
        }
    }
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, ids @ ..] = arguments.as_slice() else { return Err("usage: embed MODEL.svm ID ...".into()) };
    let ids: Result<Vec<i64>, _> = ids.iter().map(|id| id.parse::<i64>()).collect();
    let mut ids = ids.map_err(|error| error.to_string())?;
    for x in Model::open(path)?.embed(&mut ids)? {
        println!("{x:e}");
    }
    Ok(())
}
