package admission

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/cluster/pki"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

const (
	root = "../../../"
	// system is the controller's namespace, and account its user.
	system  = "nodevirt"
	account = "system:serviceaccount:nodevirt:nodevirt-controller"
)

// suite is what all tests share.
var suite struct {
	server     *apiserver.Server
	controller *os.Process
	// address is the controller's, dir has the files of both.
	address, dir string
	stop         func() error
}

func TestMain(m *testing.M) {
	needs.PartsOfAll("kube-apiserver and etcd")
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nodevirt-admission-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	flags, err := frontProxy(dir)
	if err != nil {
		return 1, err
	}
	log.SetLogger(logr.Discard())
	suite.server, err = apiserver.Start(ctx, dir, flags...)
	defer suite.server.Close()
	if err != nil {
		return 1, err
	}
	port, err := apiserver.FreePort()
	if err != nil {
		return 1, err
	}
	files, err := manifests(dir, port)
	if err != nil {
		return 1, err
	}
	if err := suite.server.Apply(ctx, files...); err != nil {
		return 1, err
	}
	if err := startController(dir, port); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, suite.stop()) }()
	if err := admitting(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// frontProxy returns the API server's flags for aggregation. Their files are in dir.
func frontProxy(dir string) ([]string, error) {
	authority, err := pki.NewAuthority("front-proxy")
	if err != nil {
		return nil, err
	}
	ca, err := authority.Pair()
	if err != nil {
		return nil, err
	}
	client, err := authority.Issue(pki.Identity{Name: "front-proxy"})
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{
			"--requestheader-client-ca-file=" + file("front-ca.crt"), "--requestheader-allowed-names=front-proxy",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + file("front.crt"), "--proxy-client-key-file=" + file("front.key"),
		}, errors.Join(
			os.WriteFile(file("front-ca.crt"), ca.Cert, 0o600),
			os.WriteFile(file("front.crt"), client.Cert, 0o600),
			os.WriteFile(file("front.key"), client.Key, 0o600))
}

// manifests are deploy's, but that the controller is at a port of this machine.
func manifests(dir string, port int) ([]string, error) {
	files := []string{
		root + "deploy/kubernetes/namespace.yaml",
		root + "deploy/kubernetes/serviceaccount.yaml",
		root + "deploy/kubernetes/rbac.yaml",
		root + "deploy/kubernetes/policies.yaml",
		root + "deploy/kubernetes/webhooks.yaml",
		root + "deploy/kubernetes/runtimeclass.yaml",
		root + "deploy/crds/*.yaml",
	}
	text, err := os.ReadFile(root + "deploy/kubernetes/apiservice.yaml")
	if err != nil {
		return nil, err
	}
	const servicePort = "port: 8443\n"
	if bytes.Count(text, []byte(servicePort)) != 3 {
		return nil, errors.New("apiservice.yaml does not name the service's port three times")
	}
	text = bytes.ReplaceAll(text, []byte(servicePort), fmt.Appendf(nil, "port: %d\n", port))
	text = append(text, `---
apiVersion: v1
kind: Service
metadata: {name: nodevirt-controller, namespace: nodevirt}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
`...)
	file := filepath.Join(dir, "apiservice.yaml")
	return append(files, file), os.WriteFile(file, text, 0o600)
}

// memoryLimit is that of deploy's controller, in bytes.
const memoryLimit = 256 << 20

// startController runs the controller as its own service account, with the rights
// and the memory that deploy gives it.
func startController(dir string, port int) error {
	config := suite.server.Config()
	suite.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	file := filepath.Join(dir, "kubeconfig")
	err := suite.server.WriteKubeconfig(file, clientcmdapi.AuthInfo{
		Token: config.BearerToken, Impersonate: account, ImpersonateGroups: []string{"system:authenticated"},
	})
	if err != nil {
		return err
	}
	cmd := exec.Command(root+"bin/nodevirt-controller", "-kubeconfig", file, "-namespace", system, "-log-level", "error",
		"-leader-election-namespace", system, "-metrics-address", "0", "-health-address", "0",
		"-api-address", suite.address)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit*85/100))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the controller: %w: build it by `make build`", err)
	}
	suite.controller, suite.dir = cmd.Process, dir
	suite.stop = func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}
	return nil
}

// as is how a user comes to the API server.
func as(user string, groups ...string) *rest.Config {
	config := suite.server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

func newClient(config *rest.Config) (client.Client, error) {
	return client.New(config, client.Options{})
}

// admitting waits until the API server asks the controller, and trusts it, and
// until it goes by the policies.
func admitting(ctx context.Context) error {
	c, err := newClient(suite.server.Config())
	if err != nil {
		return err
	}
	vmi := new(unstructured.Unstructured)
	vmi.SetUnstructuredContent(map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "first", "namespace": "default"}, "spec": map[string]any{},
	})
	pod := new(unstructured.Unstructured)
	pod.SetUnstructuredContent(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "first", "namespace": "default", "annotations": map[string]any{"nodevirt.io/x": ""}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}},
	})
	for _, refused := range []struct {
		object *unstructured.Unstructured
		answer string
	}{{vmi, "spec.domain.memory.guest"}, {pod, "only nodevirt's controller"}} {
		err := wait.Do(ctx, func(ctx context.Context) error {
			err := c.Create(ctx, refused.object.DeepCopy(), client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), refused.answer) {
				return nil
			}
			return fmt.Errorf("the API server does not say %q: %w", refused.answer, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
