package vms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// The label of the pods that nodevirt run creates. Other pods belong to the kubelet.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Manager   = "nodevirt"
)

// RmCommand returns the command nodevirt rm.
func RmCommand() *cobra.Command {
	var (
		endpoint string
		force    bool
		timeout  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rm VM...",
		Short: "Stop and remove VMs that nodevirt run created",
		Long: `Asks each VM to shut down, powers it off after a timeout, and removes it with its
pod, the changes to its disks and its log.

Use kubectl to remove a pod that the kubelet created: the kubelet would create it
again.`,
		Example:           "  nodevirt rm hello\n  nodevirt rm --time 0s $(nodevirt ps -q)",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeVM(&endpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := cli.Dial(cmd.Context(), endpoint)
			if err != nil {
				return err
			}
			defer n.Close()
			var errs []error
			for _, name := range args {
				if err := remove(cmd, n, name, timeout, force); err != nil {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().DurationVarP(&timeout, "time", "t", 10*time.Second, "how long a guest may take to shut down")
	cmd.Flags().BoolVar(&force, "force", false, "also remove VMs that nodevirt run did not create")
	cli.EndpointFlag(cmd, &endpoint)
	return cmd
}

func remove(cmd *cobra.Command, n *cli.Node, name string, timeout time.Duration, force bool) error {
	v, err := Find(cmd.Context(), n, name)
	if err != nil {
		return err
	}
	if v.Pod.GetLabels()[ManagedBy] != Manager && !force {
		return fmt.Errorf("remove VM %s/%s: not created by nodevirt run; use kubectl delete pod -n %s %s, or --force",
			v.Namespace(), v.Name(), v.Namespace(), v.Name())
	}
	done := cli.Spin(cmd.ErrOrStderr(), "remove "+v.Name())
	err = Remove(cmd.Context(), n, v.Pod.GetId(), v.Status.GetId(), timeout)
	done()
	if err != nil {
		return fmt.Errorf("remove VM %s: %w", v.Name(), err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), v.Name())
	return nil
}

// Remove stops a pod's VM, which may take timeout to shut down, and removes the pod
// with its cgroup and its logs, as a kubelet does. container is empty if the pod has none.
func Remove(ctx context.Context, n *cli.Node, sandbox, container string, timeout time.Duration) error {
	if container != "" && timeout > 0 {
		_, err := n.Pods.StopContainer(ctx, &runtimeapi.StopContainerRequest{
			ContainerId: container, Timeout: int64(timeout.Seconds()),
		})
		if err != nil && !cli.NotFound(err) {
			return fmt.Errorf("stop container %s: %w", cli.ShortID(container), cli.Plain(err))
		}
	}
	config, err := configOf(ctx, n, sandbox)
	if cli.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := n.Pods.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("stop pod %s: %w", cli.ShortID(sandbox), cli.Plain(err))
	}
	if _, err := n.Pods.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("remove pod %s: %w", cli.ShortID(sandbox), cli.Plain(err))
	}
	return Sweep(ctx, config)
}

// Sweep removes the cgroup and the logs of a removed pod.
func Sweep(ctx context.Context, config *runtimeapi.PodSandboxConfig) error {
	return errors.Join(removeCgroup(ctx, config.GetLinux().GetCgroupParent()), removeLogs(config))
}

// configOf returns a pod's config from containerd's verbose status.
func configOf(ctx context.Context, n *cli.Node, sandbox string) (*runtimeapi.PodSandboxConfig, error) {
	reply, err := n.Pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("get the status of pod %s: %w", cli.ShortID(sandbox), cli.Plain(err))
	}
	var info struct {
		Config struct {
			LogDirectory string `json:"log_directory"`
			Linux        struct {
				CgroupParent string `json:"cgroup_parent"`
			} `json:"linux"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(reply.GetInfo()["info"]), &info); err != nil {
		return nil, fmt.Errorf("read the verbose status of pod %s: %w", cli.ShortID(sandbox), err)
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata:     reply.GetStatus().GetMetadata(),
		LogDirectory: info.Config.LogDirectory,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: info.Config.Linux.CgroupParent},
	}, nil
}

// LogFolder returns the name of a pod's log folder, as the kubelet forms it.
func LogFolder(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s", m.GetNamespace(), m.GetName(), m.GetUid())
}

// removeLogs removes log files only, and only if the folder belongs to this pod.
func removeLogs(config *runtimeapi.PodSandboxConfig) error {
	dir := config.GetLogDirectory()
	if filepath.Base(dir) != LogFolder(config.GetMetadata()) {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log*"))
	if err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	var errs []error
	for _, path := range append(logs, dir) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove logs: %w", err))
		}
	}
	return errors.Join(errs...)
}
