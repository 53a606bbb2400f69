//go:build machine

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// vm is a machine that is a VM of nodevirt's. Its guest agent runs programs.
type vm struct {
	image string // with the machine's disk
}

const machinePod = `apiVersion: v1
kind: Pod
metadata: {name: machine}
spec:
  runtimeClassName: vm
  restartPolicy: Never
  containers:
  - name: guest
    image: %s
    resources: {requests: {cpu: 100m}, limits: {cpu: "2", memory: 2560Mi}}
`

// newVM makes the machine's disk, and pushes it.
func newVM(ctx context.Context, o guest.Options, dir string) (*vm, error) {
	disk := filepath.Join(dir, "disk.qcow2")
	defer func() { _ = os.Remove(disk) }()
	if err := guest.Machine(ctx, o, filepath.Join(dir, "payload"), disk); err != nil {
		return nil, err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	if err != nil {
		return nil, err
	}
	ref, err := suite.Push(ctx, name+":1", img)
	return &vm{ref}, err
}

func (v *vm) boot(t *testing.T) {
	if err := suite.Apply(t.Context(), fmt.Sprintf(machinePod, v.image)); err != nil {
		t.Fatal(err)
	}
}

func (v *vm) command(ctx context.Context, args ...string) *exec.Cmd {
	return suite.KubectlCommand(ctx, append([]string{"exec", name, "--"}, args...)...)
}

func (v *vm) rebooted(t *testing.T) {
	until(t, "the next boot", func(ctx context.Context) error {
		out, err := run(ctx, "[ ! -e /run/booted-before ] || echo before")
		if err == nil && out != "" {
			err = errors.New("the machine has not restarted yet")
		}
		return err
	})
}
