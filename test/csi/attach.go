package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodevirt/nodevirt/test/loopdev"
)

// deviceKey is where a node finds the path of an attached volume's device.
const deviceKey = "device"

// ControllerPublishVolume attaches a volume to a node. All nodes that have a volume have the same device,
// so that they see each other's writes at once.
func (c *controller) ControllerPublishVolume(
	_ context.Context, r *spec.ControllerPublishVolumeRequest,
) (*spec.ControllerPublishVolumeResponse, error) {
	name, on := r.GetVolumeId(), r.GetNodeId()
	if name == "" || on == "" {
		return nil, invalid("want the ids of a volume and a node")
	}
	if err := check(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.volumes.get(name)
	if err != nil {
		return nil, err
	}
	if !c.known(on) {
		return nil, status.Errorf(codes.NotFound, "no node is named %q", on)
	}
	mode := r.GetVolumeCapability().GetAccessMode().GetMode()
	want := attachment{
		Mode: mode.String(), Block: r.GetVolumeCapability().GetBlock() != nil, ReadOnly: r.GetReadonly() || readOnly(mode),
	}
	if err := compatible(v, name, on, want); err != nil {
		return nil, err
	}
	if v.Attached == nil {
		v.Attached = map[string]attachment{}
	}
	v.Attached[on] = want
	// Before there is a device, so that a driver that is killed here does not lose it.
	if err := c.volumes.put(name, v); err != nil {
		return nil, err
	}
	// A file system is mounted read-only instead: the kernel may have to repair it first.
	device, err := c.device(name, want.Block && want.ReadOnly)
	if err != nil {
		return nil, err
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{deviceKey: device}}, nil
}

// compatible returns an error if a volume can't be attached to a node because of where it is already.
func compatible(v *volume, name, on string, want attachment) error {
	for _, other := range slices.Sorted(maps.Keys(v.Attached)) {
		have := v.Attached[other]
		switch {
		case other == on && have != want:
			return status.Errorf(codes.AlreadyExists, "volume %s is attached to %s in another way", name, on)
		case other == on:
			continue
		case !shared(spec.VolumeCapability_AccessMode_Mode(spec.VolumeCapability_AccessMode_Mode_value[have.Mode])),
			!shared(spec.VolumeCapability_AccessMode_Mode(spec.VolumeCapability_AccessMode_Mode_value[want.Mode])):
			return status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s: detach it there first", name, other)
		case have.ReadOnly != want.ReadOnly:
			return status.Errorf(codes.FailedPrecondition, "volume %s can't be attached both to write and to read only", name)
		}
	}
	return nil
}

// device returns a volume's device, and makes it if there is none.
func (c *controller) device(name string, readOnly bool) (string, error) {
	its, err := loopdev.Of(c.volumes.data(name))
	if err != nil {
		return "", err
	}
	if len(its) > 0 && its[0].Leaves {
		return "", status.Errorf(codes.Aborted, "volume %s is being detached", name)
	}
	if len(its) > 0 {
		return its[0].Path, nil
	}
	var flags uint32
	if readOnly {
		flags = unix.LO_FLAGS_READ_ONLY
	}
	f, err := os.OpenFile(c.volumes.data(name), os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("attach %s: %w", name, err)
	}
	defer f.Close()
	loop, err := loopdev.Attach(f, flags)
	if err != nil {
		return "", err
	}
	defer loop.Close()
	return loop.Name(), nil
}

// ControllerUnpublishVolume detaches a volume from a node, or from all. A node that went away need not
// have unmounted it.
func (c *controller) ControllerUnpublishVolume(
	_ context.Context, r *spec.ControllerUnpublishVolumeRequest,
) (*spec.ControllerUnpublishVolumeResponse, error) {
	name, on := r.GetVolumeId(), r.GetNodeId()
	if name == "" {
		return nil, invalid("no volume id is given")
	}
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.volumes.get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &spec.ControllerUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	left := maps.Clone(v.Attached)
	maps.DeleteFunc(left, func(other string, _ attachment) bool { return on == "" || other == on })
	if len(left) == 0 {
		if err := detach(c.volumes.data(name)); err != nil {
			return nil, err
		}
	}
	v.Attached = left
	return &spec.ControllerUnpublishVolumeResponse{}, c.volumes.put(name, v)
}

func detach(file string) error {
	its, err := loopdev.Of(file)
	for _, d := range its {
		err = errors.Join(err, d.Detach())
	}
	return err
}

// flush brings a volume's file up to date, for a copy.
func (c *controller) flush(name string) error {
	its, err := loopdev.Of(c.volumes.data(name))
	for _, d := range its {
		err = errors.Join(err, d.Flush())
	}
	return err
}
