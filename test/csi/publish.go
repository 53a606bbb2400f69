package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodePublishVolume shows a volume at a path: a staged file system, or a device.
func (n *node) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	name, target := r.GetVolumeId(), r.GetTargetPath()
	if name == "" || target == "" || r.GetStagingTargetPath() == "" {
		return nil, invalid("want a volume id, a staging path and a target path")
	}
	if err := check(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := n.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := n.volumes.get(name); err != nil {
		return nil, err
	}
	device := r.GetPublishContext()[deviceKey]
	if device == "" {
		return nil, invalid("volume %s is not attached", name)
	}
	mode := r.GetVolumeCapability().GetAccessMode().GetMode()
	if err := n.keep(name, device, target, mode.String()); err != nil {
		return nil, err
	}
	if done, err := mounted(device, target); done || err != nil {
		return &spec.NodePublishVolumeResponse{}, err
	}
	from := device
	if r.GetVolumeCapability().GetMount() != nil {
		from = r.GetStagingTargetPath()
		if staged, err := mounted(device, from); err != nil || !staged {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", name, from)
		}
	}
	if err := mountPoint(target, from == device); err != nil {
		return nil, err
	}
	return &spec.NodePublishVolumeResponse{}, bind(from, target, r.GetReadonly())
}

// mountPoint makes a file or a folder to mount on.
func mountPoint(path string, file bool) error {
	if !file {
		return os.MkdirAll(path, 0o750)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return f.Close()
}

// NodeUnpublishVolume removes it from the path, and the path.
func (n *node) NodeUnpublishVolume(
	_ context.Context, r *spec.NodeUnpublishVolumeRequest,
) (*spec.NodeUnpublishVolumeResponse, error) {
	name, target := r.GetVolumeId(), r.GetTargetPath()
	if name == "" || target == "" {
		return nil, invalid("want a volume id and a target path")
	}
	release, err := n.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := unmount(target); err != nil {
		return nil, err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove target path: %w", err)
	}
	if !isID(name) {
		return &spec.NodeUnpublishVolumeResponse{}, nil
	}
	all, err := n.targets(name)
	if err != nil {
		return nil, err
	}
	delete(all, target)
	if len(all) > 0 {
		return &spec.NodeUnpublishVolumeResponse{}, write(n.record(name), all)
	}
	if err := os.Remove(n.record(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove record: %w", err)
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// record is the file with a volume's target paths, and their access modes.
func (n *node) record(name string) string { return filepath.Join(n.nodes, n.name, name+".json") }

func (n *node) targets(name string) (map[string]string, error) {
	all := map[string]string{}
	text, err := os.ReadFile(n.record(name))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the target paths of %s: %w", name, err)
	}
	return all, nil
}

// keep notes a target path of a volume before it is mounted there. A volume with a single writer has one.
func (n *node) keep(name, device, target, mode string) error {
	all, err := n.targets(name)
	if err != nil {
		return err
	}
	single := spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER.String()
	for other, has := range all {
		there, err := mounted(device, other)
		switch {
		case err != nil:
			return err
		case other == target:
			continue
		case !there:
			delete(all, other) // the node was off meanwhile
		case mode == single || has == single:
			return status.Errorf(codes.FailedPrecondition, "volume %s has a single writer, at %s", name, other)
		}
	}
	all[target] = mode
	return write(n.record(name), all)
}
