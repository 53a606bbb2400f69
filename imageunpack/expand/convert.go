package expand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Conversion is a run of qemu-img convert that makes a raw disk.
type Conversion struct {
	// QemuImg is the path of qemu-img.
	QemuImg string
	// UID is the user that qemu-img runs as, which must own To; 0 is root. Other users can read
	// all files, which From may need, but write only their own.
	UID uint32
	// From is open for reading. To is open for reading and writing: a file or a block device
	// of at least the disk's size. Both stay the caller's.
	From, To *os.File
	// Format is the format of From, by QEMU's name.
	Format string
	// Offset and Length, in bytes, limit the conversion to a part of From, which goes to the
	// beginning of To. A Length of 0 means all of From.
	Offset, Length int64
	// Zeroed means that To reads as zeros, so that zeros need not be written.
	Zeroed bool
	// Offload lets the file system share or copy data if it can.
	Offload bool
}

// Run converts, and calls progress, from another goroutine, with the completed part, from 0 to 1.
// qemu-img has ended when Run returns, and it ends with this process.
func (c Conversion) Run(ctx context.Context, progress func(done float64)) error {
	cmd := exec.CommandContext(ctx, c.QemuImg, c.args()...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{c.From, c.To} // 3 and 4
	cmd.Stdout = &percent{progress: progress}
	stderr := &head{}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.UID, Gid: c.UID}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_DAC_READ_SEARCH}
	}
	err := runLocked(cmd)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) // not "signal: killed"
	case bytes.Contains(stderr.b, []byte("No space left on device")):
		err = syscall.ENOSPC
	}
	return fmt.Errorf("convert to raw: %w: %q", err, bytes.TrimSpace(stderr.b))
}

// args returns qemu-img's arguments. Sixteen parallel requests, written in any order, were the
// fastest variant measured; see docs/performance.md.
func (c Conversion) args() []string {
	args := []string{"convert", "-p", "-O", "raw", "-n", "-W", "-m", "16"}
	if c.Zeroed {
		args = append(args, "--target-is-zero")
	}
	if c.Offload {
		args = append(args, "-C")
	} else {
		// Holes of at least a qcow2 cluster: cloning or removing a file of single blocks would
		// take seconds.
		args = append(args, "-S", "64k")
	}
	if c.Length == 0 {
		return append(args, "-f", c.Format, "/proc/self/fd/3", "/proc/self/fd/4")
	}
	part := fmt.Sprintf("driver=raw,offset=%d,size=%d,file.driver=%s,file.file.driver=file,file.file.filename=/proc/self/fd/3",
		c.Offset, c.Length, c.Format)
	return append(args, "--image-opts", part, "/proc/self/fd/4")
}

// runLocked runs a command on a thread that lives as long as the command: for the kernel the
// parent of Pdeathsig is a thread.
func runLocked(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	return <-done
}

// percent parses the output of qemu-img -p: "    (12.34/100%)" and a carriage return.
type percent struct {
	progress func(float64)
	line     []byte
}

// maxLine is longer than any line of qemu-img's progress.
const maxLine = 64

func (p *percent) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\r' || c == '\n' {
			if done, err := parsePercent(p.line); err == nil {
				p.progress(done)
			}
			p.line = p.line[:0]
		} else if len(p.line) < maxLine {
			p.line = append(p.line, c)
		}
	}
	return len(b), nil
}

var errNoPercent = errors.New("no progress")

func parsePercent(line []byte) (float64, error) {
	text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("("))
	number, _, slash := bytes.Cut(text, []byte("/"))
	if !ok || !slash {
		return 0, errNoPercent
	}
	v, err := strconv.ParseFloat(string(number), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, errNoPercent
	}
	return v / 100, nil
}

// head keeps the beginning of a program's output.
type head struct{ b []byte }

const maxHead = 1000

func (t *head) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxHead-len(t.b))]...)
	return len(b), nil
}
