package control

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/apiserver"
)

// userAgent begins the controller's, by which its requests are told from others'.
const userAgent = "nodevirt-controller/"

// controller is the program, as a pod of it would run.
type controller struct {
	cmd *exec.Cmd
	log *os.File
}

func startController(ctx context.Context, o Options, server *apiserver.Server) (*controller, error) {
	kubeconfig := filepath.Join(o.Dir, "kubeconfig")
	if err := writeKubeconfig(kubeconfig, server); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Dir, "controller.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.Checkout, "bin", "nodevirt-controller"), "-kubeconfig", kubeconfig,
		"-metrics-address", "0", "-health-address", "0", "-leader-election-namespace", "default")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	return &controller{cmd, log}, nil
}

func (p *controller) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.log.Close()
}

// working returns when the controller has made a pod, so that its caches are full.
func (p *controller) working(ctx context.Context, c client.Client) error {
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "first"}}); err != nil {
		return err
	}
	first := instance("first", "first")
	if err := c.Create(ctx, first); err != nil {
		return err
	}
	for {
		n, err := madePods(ctx, c, "first")
		if err != nil || n > 0 {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			text, _ := os.ReadFile(p.log.Name())
			return fmt.Errorf("the controller makes no pod: %w\n%s", err, text)
		}
	}
}

// memory reads what the kernel knows of the process.
func (p *controller) memory() (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		switch {
		case err != nil:
		case fields[0] == "Rss:":
			m.RSS = kib << 10
		case fields[0] == "Pss:":
			m.PSS = kib << 10
		}
	}
	return m, nil
}

func writeKubeconfig(path string, server *apiserver.Server) error {
	config := server.Config()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthority: config.CAFile, TLSServerName: config.ServerName,
	}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	return clientcmd.WriteToFile(*k, path)
}
