// Diskload reads or writes a block device past the page cache, with a number of requests under way
// at all times, by Linux's asynchronous I/O, as fio does with ioengine=libaio and direct=1. What to
// do is on standard input, what came of it on standard output, both in JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// job is what to do. Sizes and places are in bytes.
type job struct {
	Device      string
	Write       bool
	Random      bool
	Size        int   // of a request
	Depth       int   // requests under way
	Begin, End  int64 // of the device's part that is used
	Seed        uint64
	Nanoseconds int64 // how long requests are made
}

// result is what was done, until the last request had ended.
type result struct {
	Requests    int
	Nanoseconds int64
}

func main() {
	log.SetFlags(0)
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		log.Fatal("read the job: ", err)
	}
	r, err := j.run()
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal(err)
	}
}

// request is the kernel's struct iocb, on little-endian machines.
type request struct {
	data         uint64
	_, _         uint32 // key, flags of the file
	opcode       uint16
	_            int16 // priority
	file         uint32
	buffer, size uint64
	offset       int64
	_            uint64 // reserved
	_, _         uint32 // flags, eventfd
}

// opWrite is the opcode of a request that writes; 0 reads.
const opWrite = 1

// event is the kernel's struct io_event.
type event struct {
	data, request   uint64
	result, result2 int64
}

// load is a job under way.
type load struct {
	job
	context  uintptr   // the kernel's
	requests []request // each has its part of the memory
	ready    []*request
	events   []event
	random   *rand.Rand
	next     int64 // where the next request goes, in sequence
}

func (j job) run() (r result, err error) {
	l, err := j.begin()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	for under := 0; ; {
		if time.Since(begun) < time.Duration(j.Nanoseconds) {
			if err := l.submit(); err != nil {
				return r, err
			}
			under += len(l.ready)
		}
		if under == 0 {
			r.Nanoseconds = time.Since(begun).Nanoseconds()
			return r, nil
		}
		if err := l.await(); err != nil {
			return r, err
		}
		under -= len(l.ready)
		r.Requests += len(l.ready)
	}
}

// begin opens the device and makes the requests, all ready.
func (j job) begin() (*load, error) {
	file, err := syscall.Open(j.Device, syscall.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.Device, err)
	}
	memory, err := syscall.Mmap(-1, 0, j.Size*j.Depth, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("take memory: %w", err)
	}
	for i := range memory {
		memory[i] = byte(i>>9) | 1 // no zeros, which could be kept as holes
	}
	l := &load{
		job: j, requests: make([]request, j.Depth), events: make([]event, j.Depth),
		random: rand.New(rand.NewPCG(j.Seed, 0)), next: j.Begin,
	}
	for i := range l.requests {
		q := &l.requests[i]
		*q = request{data: uint64(i), file: uint32(file), size: uint64(j.Size)}
		q.buffer = uint64(uintptr(unsafe.Pointer(&memory[i*j.Size])))
		if j.Write {
			q.opcode = opWrite
		}
		l.ready = append(l.ready, q)
	}
	if _, err := call(syscall.SYS_IO_SETUP, uintptr(j.Depth), uintptr(unsafe.Pointer(&l.context)), 0, 0); err != nil {
		return nil, fmt.Errorf("set up asynchronous I/O: %w", err)
	}
	return l, nil
}

// submit hands the kernel the requests that are ready, each for its next place.
func (l *load) submit() error {
	for _, q := range l.ready {
		q.offset = l.place()
	}
	n, err := call(syscall.SYS_IO_SUBMIT, l.context, uintptr(len(l.ready)), uintptr(unsafe.Pointer(&l.ready[0])), 0)
	if err == nil && n != len(l.ready) {
		err = errors.New("the kernel took fewer")
	}
	if err != nil {
		return fmt.Errorf("submit %d requests: %w", len(l.ready), err)
	}
	return nil
}

func (l *load) place() int64 {
	size := int64(l.Size)
	if l.Random {
		return l.Begin + l.random.Int64N((l.End-l.Begin)/size)*size
	}
	if l.next+size > l.End {
		l.next = l.Begin
	}
	l.next += size
	return l.next - size
}

// await waits for a request, and has those that ended ready.
func (l *load) await() error {
	n, err := call(syscall.SYS_IO_GETEVENTS, l.context, 1, uintptr(len(l.events)), uintptr(unsafe.Pointer(&l.events[0])))
	if err != nil {
		return fmt.Errorf("wait for requests: %w", err)
	}
	l.ready = l.ready[:0]
	for _, e := range l.events[:n] {
		q := &l.requests[e.data]
		if e.result != int64(l.Size) {
			return fmt.Errorf("a request at %d ended with %d", q.offset, e.result)
		}
		l.ready = append(l.ready, q)
	}
	return nil
}

// call makes a system call, again where a signal ended it.
func call(number, a, b, c, d uintptr) (int, error) {
	for {
		n, _, err := syscall.Syscall6(number, a, b, c, d, 0, 0)
		if err == 0 {
			return int(n), nil
		}
		if err != syscall.EINTR {
			return 0, err
		}
	}
}
