package csi

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/loopdev"
)

// Release detaches all volumes of a driver's folder from all nodes, at the end of a cluster, when nothing
// runs in it. It detaches what is attached to their devices, too: a kubelet holds each device of a pod by
// another loop device. The folder may be missing.
func Release(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "volumes", "*", "data"))
	if err != nil || len(files) == 0 {
		return err
	}
	all, err := loopdev.All()
	for _, file := range files {
		its, broken := loopdev.Of(file)
		if errors.Is(broken, os.ErrNotExist) {
			continue
		}
		err = errors.Join(err, broken)
		for _, d := range its {
			for _, on := range all {
				if on.Behind == d.Number {
					err = errors.Join(err, on.Detach())
				}
			}
			err = errors.Join(err, d.Detach())
		}
	}
	return err
}
