package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"
)

// Dumps dumps the memory of running domains.
//
// QEMU gets the file as a descriptor, and writes by itself: libvirt's call would have libvirtd
// open a path as root, and holds the domain until the dump ends. QEMU stops the guest's vCPUs
// meanwhile, and then resumes them if they ran. It can't cancel a dump.
type Dumps struct{ conn *Connection }

// DumpStatus is QEMU's word for how far its last dump is.
type DumpStatus string

// The statuses of a dump.
const (
	DumpNone      DumpStatus = "none"
	DumpActive    DumpStatus = "active"
	DumpCompleted DumpStatus = "completed"
	DumpFailed    DumpStatus = "failed"
)

// dumpFile is QEMU's name of the descriptor that it dumps to.
const dumpFile = "nodevirt-memory-dump"

// Start has QEMU write the guest's memory to a file, in ELF. It returns when QEMU has begun. The
// file stays the caller's. After [ErrUnavailable], [Dumps.Status] says whether QEMU has begun.
func (d *Dumps) Start(ctx context.Context, uuid string, file *os.File) error {
	const op = "dump the memory of"
	files, err := duplicate(map[string][]*os.File{"": {file}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	_, err = await(ctx, op, "domain "+uuid, func() (struct{}, error) {
		defer files.close()
		return struct{}{}, do(context.WithoutCancel(ctx), d.conn, op, uuid, func(dom *libvirt.Domain) error {
			if _, err := command(dom, "getfd", map[string]any{"fdname": dumpFile}, *files[""][0]); err != nil {
				return err
			}
			_, err := command(dom, "dump-guest-memory", map[string]any{
				"paging": false, "protocol": "fd:" + dumpFile, "format": "elf", "detach": true,
			})
			if err != nil { // QEMU has closed the descriptor if it came so far
				_, _ = command(dom, "closefd", map[string]any{"fdname": dumpFile})
			}
			return err
		})
	})
	return err
}

// Status returns how far QEMU's last dump is. QEMU has closed the file of one that has ended.
func (d *Dumps) Status(ctx context.Context, uuid string) (DumpStatus, error) {
	return onDomain(ctx, d.conn, "ask for the memory dump of", uuid, func(dom *libvirt.Domain) (DumpStatus, error) {
		text, err := command(dom, "query-dump", nil)
		if err != nil {
			return "", err
		}
		var reply struct {
			Return struct {
				Status DumpStatus `json:"status"`
			} `json:"return"`
		}
		if err := json.Unmarshal([]byte(text), &reply); err != nil {
			return "", fmt.Errorf("decode the status of QEMU's dump: %w", err)
		}
		switch s := reply.Return.Status; s {
		case DumpNone, DumpActive, DumpCompleted, DumpFailed:
			return s, nil
		}
		return "", fmt.Errorf("QEMU's dump has an unknown status %.40q", reply.Return.Status)
	})
}
