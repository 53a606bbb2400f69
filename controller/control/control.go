// Package control gives orders to VMs: it runs machine controls in their pods through
// the API server, so that no node opens a port for them. It leaves to its callers which
// orders there are, and who may give them.
package control

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go's port-forward still has its types
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Prefix is what the commands that are machine controls begin with.
const Prefix = "nodevirt.io/"

// Client reaches VMs.
type Client struct {
	cluster kubernetes.Interface
	config  *rest.Config
}

// New returns a client with the account of a configuration.
func New(cluster kubernetes.Interface, config *rest.Config) *Client {
	return &Client{cluster: cluster, config: config}
}

// ForConfig returns a client with the account and the connection of a configuration. The
// client does not limit its requests: the API server's priority and fairness decide.
func ForConfig(config *rest.Config) (*Client, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	cluster, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("set up the connections to VMs: %w", err)
	}
	return New(cluster, unlimited), nil
}

// Control gives an order to the VM in a pod, and returns the node's answer, at most so
// many bytes.
func (c *Client) Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error) {
	out := Bounded{Most: most}
	if err := c.Copy(ctx, p, &out, name, arguments...); err != nil {
		return nil, err
	}
	if out.More {
		return nil, apierrors.NewInternalError(fmt.Errorf("the node's answer has more than %d bytes", most))
	}
	return out.Text, nil
}

// Copy gives an order to the VM in a pod, and writes the node's answer as it arrives. An error of the writer ends it.
func (c *Client) Copy(ctx context.Context, p *corev1.Pod, to io.Writer, name string, arguments ...string) error {
	complaint := Bounded{Most: MaxComplaint}
	err := c.Stream(ctx, p, &corev1.PodExecOptions{
		Container: pod.Container, Command: append([]string{Prefix + name}, arguments...), Stdout: true, Stderr: true,
	}, remotecommand.StreamOptions{Stdout: to, Stderr: &complaint})
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("%w%s", explain(p.Spec.NodeName, err), complaint.Text))
	}
	return nil
}

// explain adds what an error of a kubelet means that cannot reach the node's shim.
func explain(node string, err error) error {
	if err == nil || !strings.Contains(err.Error(), "dial unix ") {
		return err
	}
	return fmt.Errorf("nodevirt-shim on node %s does not answer, while its guests run on; look at the service nodevirt-shim there: %w", node, err)
}

// Stream runs a command in a pod.
func (c *Client) Stream(
	ctx context.Context, p *corev1.Pod, options *corev1.PodExecOptions, streams remotecommand.StreamOptions,
) error {
	request := c.cluster.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec)
	byWebSocket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	bySPDY, err := remotecommand.NewSPDYExecutor(c.config, "POST", request.URL())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(byWebSocket, bySPDY, httpstream.IsUpgradeFailure)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// MaxComplaint bounds a node's message about what failed, in bytes.
const MaxComplaint = 4096

// Bounded keeps the beginning of what is written to it.
type Bounded struct {
	// Most bounds the text, in bytes.
	Most int
	Text []byte
	// More says that there was more.
	More bool
}

// Write implements io.Writer.
func (b *Bounded) Write(p []byte) (int, error) {
	room := min(len(p), b.Most-len(b.Text))
	b.Text = append(b.Text, p[:room]...)
	b.More = b.More || room < len(p)
	return len(p), nil
}
