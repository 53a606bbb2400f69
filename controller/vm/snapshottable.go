package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/state"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

const (
	// classAge is how long the VolumeSnapshotClass of a StorageClass is kept in memory.
	classAge = time.Minute
	// lookForClass is the time between two looks for the VolumeSnapshotClass of a VM's PVC: the
	// cluster may not serve the kind, so there is no watch.
	lookForClass = 5 * time.Minute
	// reasonNoPVC is KubeVirt's.
	reasonNoPVC = "PVC not found"
)

// SnapshotClasses lists VolumeSnapshotClasses; [volumesnapshot.Client].
type SnapshotClasses interface {
	Classes(ctx context.Context) (all []volumesnapshot.Class, served bool, err error)
}

// storageClasses keeps for a while which StorageClasses have a VolumeSnapshotClass.
type storageClasses struct {
	mu    sync.Mutex
	since time.Time
	// problems are why PVCs of a StorageClass can have no snapshots, by the classes' names; nil
	// if they can.
	problems map[string]error
}

// errNoClass says that no VolumeSnapshotClass matches.
var errNoClass = errors.New("no VolumeSnapshotClass")

// find returns why the PVCs of a StorageClass can have no snapshots, if that is known.
func (c *storageClasses) find(name string, now time.Time) (known bool, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.since); age < 0 || age > classAge {
		c.since, c.problems = now, map[string]error{}
	}
	problem, known = c.problems[name]
	return known, problem
}

func (c *storageClasses) keep(name string, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems[name] = problem
}

// snapshottables says which volumes of a VM can have snapshots.
type snapshottables struct {
	client    client.Client
	live      client.Reader
	snapshots SnapshotClasses
	now       func() time.Time
	classes   storageClasses
}

// unsnapshottable returns why the PVCs of a StorageClass can have no snapshots; nil if they can.
func (s *snapshottables) unsnapshottable(ctx context.Context, storageClass string) (problem, err error) {
	if known, problem := s.classes.find(storageClass, s.now()); known {
		return problem, nil
	}
	if problem, err = s.findClass(ctx, storageClass); err == nil {
		s.classes.keep(storageClass, problem)
	}
	return problem, err
}

func (s *snapshottables) findClass(ctx context.Context, storageClass string) (problem, err error) {
	of := new(storagev1.StorageClass)
	if err := s.live.Get(ctx, client.ObjectKey{Name: storageClass}, of); apierrors.IsNotFound(err) {
		return errNoClass, nil
	} else if err != nil {
		return nil, fmt.Errorf("read StorageClass %s: %w", storageClass, err)
	}
	classes, _, err := s.snapshots.Classes(ctx)
	if err != nil {
		return nil, err
	}
	name, problem := volumesnapshot.ClassOf(classes, of)
	if problem == nil && name == "" {
		problem = errNoClass
	}
	return problem, nil
}

// statuses returns which volumes of a VM a VirtualMachineSnapshot has, and why not the
// others. Classless is true if a PVC has no VolumeSnapshotClass, whose creation is no event here.
func (s *snapshottables) statuses(
	ctx context.Context, vm *kubevirt.VirtualMachine,
) (all []kubevirt.VolumeSnapshotStatus, classless bool, err error) {
	all = []kubevirt.VolumeSnapshotStatus{}
	if vm.Spec.Template == nil {
		return all, false, nil
	}
	uses, err := state.PVCs(ctx, s.client, vm)
	if err != nil {
		return nil, false, err
	}
	volumes := make([]string, 0, len(vm.Spec.Template.Spec.Volumes)+1)
	for _, v := range vm.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	names := map[string]string{}
	for _, use := range uses {
		names[use.Volume] = use.Name
		if !slices.Contains(volumes, use.Volume) { // the persistent state is no volume of the template
			volumes = append(volumes, use.Volume)
		}
	}
	for _, v := range volumes {
		one := kubevirt.VolumeSnapshotStatus{Name: v, Enabled: true}
		name, is := names[v]
		if !is {
			one.Enabled, one.Reason = false, fmt.Sprintf("Snapshot is not supported for this volumeSource type [%s]", v)
			all = append(all, one)
			continue
		}
		why, err := s.snapshottable(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, v)
		if err != nil {
			return nil, false, err
		}
		if why != "" {
			one.Enabled, one.Reason = false, why
			classless = classless || why != reasonNoPVC
		}
		all = append(all, one)
	}
	return all, classless, nil
}

// snapshottable returns why a PVC, which is a volume, can have no snapshots, in KubeVirt's words;
// "" if it can.
func (s *snapshottables) snapshottable(ctx context.Context, key client.ObjectKey, volume string) (why string, err error) {
	pvc := new(corev1.PersistentVolumeClaim)
	if err := s.client.Get(ctx, key, pvc); apierrors.IsNotFound(err) {
		return reasonNoPVC, nil
	} else if err != nil {
		return "", fmt.Errorf("read PVC %s: %w", key, err)
	}
	class, problem := "", errNoClass
	if pvc.Spec.StorageClassName != nil && *pvc.Spec.StorageClassName != "" {
		class = *pvc.Spec.StorageClassName
		if problem, err = s.unsnapshottable(ctx, class); err != nil {
			return "", err
		}
	}
	switch {
	case problem == nil:
		return "", nil
	case errors.Is(problem, errNoClass):
		return fmt.Sprintf("No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [%s] [%s]", class, volume), nil
	}
	return problem.Error(), nil
}
