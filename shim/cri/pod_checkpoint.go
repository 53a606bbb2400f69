package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

const (
	// archiveSuffix ends the name of a pod checkpoint's file, before which is the container's.
	archiveSuffix = ".tar"
	// maxArchives bounds the files of a pod checkpoint that are looked at: a pod runs one VM.
	maxArchives = 16
	// undoTime bounds the removal of a pod that was not restored.
	undoTime = 20 * time.Second
)

// podCheckpointCalls checkpoint and restore the pods of VMs. A pod checkpoint is a folder with one
// archive, that of the VM. Ordinary containers of the pod are refused: containerd would have to
// capture them at the same moment.
type podCheckpointCalls struct {
	find        finder
	pods        *sandboxCalls
	containers  containerLife
	reports     sandboxReports
	checkpoints checkpoints
}

func (s *podCheckpointCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_CheckpointPod_FullMethodName: decoded(s.checkpoint),
		runtimeapi.RuntimeService_RestorePod_FullMethodName:    decoded(s.restore),
	}
}

// checkpoint saves the VM of a pod. Pods without one are containerd's.
func (s *podCheckpointCalls) checkpoint(c *call, r *runtimeapi.CheckpointPodRequest, f frame) error {
	sandbox, err := s.find.sandbox(c.ctx, r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if sandbox == "" {
		return c.pass(f)
	}
	if err := s.save(c.ctx, sandbox, r); err != nil {
		return fmt.Errorf("checkpoint pod sandbox %q: %w", sandbox, err)
	}
	return c.send(&runtimeapi.CheckpointPodResponse{})
}

func (s *podCheckpointCalls) save(ctx context.Context, sandbox string, r *runtimeapi.CheckpointPodRequest) error {
	if err := noOptions(r.GetOptions()); err != nil {
		return err
	}
	vm, err := s.selected(sandbox, r.GetContainerIds())
	if err != nil {
		return err
	}
	folder := r.GetOutputPath()
	if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
		return fmt.Errorf("%w: output path %.200q is not the absolute path of a folder", vmerrors.ErrInvalid, folder)
	}
	all, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("%w: output path: %w", vmerrors.ErrInvalid, err)
	}
	if len(all) > 0 {
		return fmt.Errorf("%w: output path %s is not empty: name an empty folder", vmerrors.ErrInvalid, folder)
	}
	archive := filepath.Join(folder, vm.GetMetadata().GetName()+archiveSuffix)
	if err := s.checkpoints.Checkpoint(ctx, vm.GetId(), archive, pauseWithin(ctx)); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil { // the caller takes it for failed
		return errors.Join(err, os.Remove(archive))
	}
	return nil
}

// pauseWithin returns how long a guest may be paused, so that it runs again before the call's
// deadline; 0, for the usual time, without a deadline.
func pauseWithin(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline)*3/4, time.Nanosecond)
}

func noOptions(options map[string]string) error {
	for key := range options {
		return fmt.Errorf("%w: option %.80q: there are no options for VMs", vmerrors.ErrInvalid, key)
	}
	return nil
}

// selected returns the VM of a sandbox, which must be all that a request names.
func (s *podCheckpointCalls) selected(sandbox string, ids []string) (*runtimeapi.ContainerStatus, error) {
	var vm *runtimeapi.ContainerStatus
	for _, one := range s.reports.Statuses(sandbox) {
		if one.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			vm = one
		}
	}
	if vm == nil {
		return nil, fmt.Errorf("%w: its VM does not run", vmerrors.ErrState)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: no container is named; name the VM, %s", vmerrors.ErrInvalid, vm.GetId())
	}
	for _, id := range ids {
		if id != vm.GetId() {
			return nil, status.Error(codes.Unimplemented, fmt.Sprintf("container %.80q is not the pod's VM, and only VMs have checkpoints: "+
				"name the VM alone, %s; ordinary containers of the restored pod start from their images", id, vm.GetId()))
		}
	}
	if len(ids) > 1 {
		return nil, fmt.Errorf("%w: container %s is named %d times", vmerrors.ErrInvalid, vm.GetId(), len(ids))
	}
	return vm, nil
}

// restore makes a pod whose VM goes on from a pod checkpoint when it is started. Pods of other
// handlers are containerd's.
func (s *podCheckpointCalls) restore(c *call, r *runtimeapi.RestorePodRequest, f frame) error {
	if r.GetRuntimeHandler() != s.pods.handler {
		return c.pass(f)
	}
	config, archive, err := saved(r)
	if err != nil {
		return fmt.Errorf("restore pod %s/%s: %w", r.GetConfig().GetMetadata().GetNamespace(), r.GetConfig().GetMetadata().GetName(), err)
	}
	run := *c
	run.method = runtimeapi.RuntimeService_RunPodSandbox_FullMethodName
	sandbox, _, err := s.pods.makeVM(&run, &runtimeapi.RunPodSandboxRequest{Config: r.GetConfig(), RuntimeHandler: r.GetRuntimeHandler()})
	if err != nil {
		return err
	}
	c.asked()
	id, err := s.containers.Restore(c.ctx, sandbox, config, archive)
	if err == nil {
		err = context.Cause(c.ctx)
	}
	if err != nil {
		return errors.Join(err, s.discard(c.ctx, sandbox))
	}
	return c.send(&runtimeapi.RestorePodResponse{
		PodSandboxId:       sandbox,
		RestoredContainers: []*runtimeapi.RestoredContainer{{Name: config.GetMetadata().GetName(), ContainerId: id}},
	})
}

// discard removes a pod whose VM was not restored.
func (s *podCheckpointCalls) discard(ctx context.Context, sandbox string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := s.pods.vms.RemoveIn(ctx, sandbox); err != nil {
		return err
	}
	if err := s.pods.removeAgain(ctx, sandbox); err != nil {
		return err
	}
	return s.pods.sandboxes.Forget(sandbox)
}

// saved returns the config and the archive of the one container of a pod checkpoint.
func saved(r *runtimeapi.RestorePodRequest) (config *runtimeapi.ContainerConfig, archive string, err error) {
	if err := noOptions(r.GetOptions()); err != nil {
		return nil, "", err
	}
	folder := r.GetCheckpointPath()
	if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
		return nil, "", fmt.Errorf("%w: checkpoint path %.200q is not the absolute path of a folder", vmerrors.ErrInvalid, folder)
	}
	name, err := containerIn(folder)
	if err != nil {
		return nil, "", fmt.Errorf("%w: checkpoint path: %w", vmerrors.ErrInvalid, err)
	}
	configs := r.GetContainerConfigs()
	if len(configs) != 1 || configs[0].GetMetadata().GetName() != name {
		return nil, "", fmt.Errorf("%w: the checkpoint has container %.80q, and %d others are requested: request exactly this one",
			vmerrors.ErrInvalid, name, len(configs))
	}
	return configs[0], filepath.Join(folder, name+archiveSuffix), nil
}

// containerIn returns the name of the container whose archive is in a folder.
func containerIn(folder string) (string, error) {
	f, err := os.Open(folder)
	if err != nil {
		return "", err
	}
	defer f.Close()
	all, err := f.Readdirnames(maxArchives)
	if err != nil {
		return "", fmt.Errorf("%s has no checkpoint: %w", folder, err)
	}
	found := ""
	for _, file := range all {
		name, is := strings.CutSuffix(file, archiveSuffix)
		if !is || name == "" {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%s has the checkpoints of several containers: a pod has one VM", folder)
		}
		found = name
	}
	if found == "" {
		return "", fmt.Errorf("%s has no checkpoint of a VM", folder)
	}
	return found, nil
}
