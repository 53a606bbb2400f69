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
	// UID is the user that it runs as, who has to own To; 0 is root. Another one can
	// read all files, which From may need, and write none but its own.
	UID uint32
	// From is open for reading, To for reading and writing: a file or a block device
	// of the disk's size at the least. Both are the caller's.
	From, To *os.File
	// Format is that of From, in QEMU's word.
	Format string
	// Offset and Length, in bytes, are a part of From that alone is converted, to the
	// beginning of To; a Length of 0 is all.
	Offset, Length int64
	// Zeroed says that To reads as zeros. What is zero is not written then.
	Zeroed bool
	// Offload has the file system share or copy data, where it can.
	Offload bool
}

// Run converts, and calls tell, from another goroutine, with the part that is done,
// from 0 to 1. When it returns, qemu-img has ended; that ends with this process too.
func (c Conversion) Run(ctx context.Context, tell func(done float64)) error {
	cmd := exec.CommandContext(ctx, c.QemuImg, c.args()...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{c.From, c.To} // 3 and 4
	cmd.Stdout = &percent{tell: tell}
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
		return context.Cause(ctx) // "signal: killed" tells less
	case bytes.Contains(stderr.b, []byte("No space left on device")):
		err = syscall.ENOSPC
	}
	return fmt.Errorf("convert to raw: %w: %q", err, bytes.TrimSpace(stderr.b))
}

// args are qemu-img's. Sixteen requests at once, written in any order, were the
// fastest of those tried; see docs/performance.md.
func (c Conversion) args() []string {
	args := []string{"convert", "-p", "-O", "raw", "-n", "-W", "-m", "16"}
	if c.Zeroed {
		args = append(args, "--target-is-zero")
	}
	if c.Offload {
		args = append(args, "-C")
	} else {
		// Holes of qcow2's clusters and larger: a file of single blocks would take seconds to
		// clone and to remove.
		args = append(args, "-S", "64k")
	}
	if c.Length == 0 {
		return append(args, "-f", c.Format, "/proc/self/fd/3", "/proc/self/fd/4")
	}
	part := fmt.Sprintf("driver=raw,offset=%d,size=%d,file.driver=%s,file.file.driver=file,file.file.filename=/proc/self/fd/3",
		c.Offset, c.Length, c.Format)
	return append(args, "--image-opts", part, "/proc/self/fd/4")
}

// runLocked runs a command on a thread that lives as long as it: to the kernel the
// parent whose death is meant by Pdeathsig is a thread.
func runLocked(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	return <-done
}

// percent reads what qemu-img -p prints: "    (12.34/100%)" and a carriage return.
type percent struct {
	tell func(float64)
	line []byte
}

// maxLine is more than qemu-img prints in one of its lines.
const maxLine = 64

func (p *percent) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\r' || c == '\n' {
			if done, err := parsePercent(p.line); err == nil {
				p.tell(done)
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

// head keeps the beginning of what a program says.
type head struct{ b []byte }

const maxHead = 1000

func (t *head) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxHead-len(t.b))]...)
	return len(b), nil
}
