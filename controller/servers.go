package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/aggregated"
	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/subresources"
	"github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/tracing"
)

const (
	// service is the name of the Service in deploy/kubernetes, certificate that of
	// the Secret which its Role lets the controller write.
	service     = "nodevirt-controller"
	certificate = "nodevirt-controller-tls"
)

// addServers has the manager serve the aggregated API, on all replicas and with one
// certificate: admission for the API server, and subresources for users.
func addServers(m manager.Manager, cluster *rest.Config, o Options, traces *tracing.Tracing, log *slog.Logger) error {
	if o.APIAddress == "" || o.APIAddress == "0" {
		return nil
	}
	keeper, err := newKeeper(cluster, o, log)
	if err != nil {
		return err
	}
	if err := m.Add(keeper); err != nil {
		return fmt.Errorf("add the certificate: %w", err)
	}
	clients, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("set up the aggregated API: %w", err)
	}
	server, err := aggregated.New(aggregated.Options{
		Address: o.APIAddress, Certificate: keeper.GetCertificate, Cluster: clients, Log: log,
	})
	if err != nil {
		return err
	}
	users, err := subresources.New(subresources.Options{
		Caller: server.Caller, Config: cluster, Scheme: m.GetScheme(), Version: o.Version, GuestfsImage: o.GuestfsImage,
		Metrics: metrics.Registry, Log: log,
	})
	if err != nil {
		return err
	}
	live, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("set up the webhooks' client: %w", err)
	}
	configuration, err := o.configuration(m.GetAPIReader()) // a change counts for what is written right after it
	if err != nil {
		return err
	}
	dataVolumes, err := datavolume.New(m.GetConfig())
	if err != nil {
		return err
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	webhooks := admission.Webhooks{
		Controller: admission.Controller(namespace),
		Uploads: func(ctx context.Context, namespace string) (bool, error) {
			state, err := dataVolumes.Get(ctx, namespace, "upload")
			return state.Served, err
		},
		Kinds: kinds.Rules(), Presets: presets(m.GetAPIReader()), Live: m.GetAPIReader(),
		Evictions: vmi.Evictions{Live: live, Config: configuration}.Refuse, Config: configuration, Tracing: traces,
	}
	server.Add(subresources.Group, users.Handler(), subresources.Versions...)
	server.Describe(users.Paths())
	server.Add(admission.Group, webhooks.Handler(server.Caller), admission.Version)
	if err := m.Add(server); err != nil {
		return fmt.Errorf("add the aggregated API: %w", err)
	}
	if err := m.AddReadyzCheck("api", server.Ready); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}

// presets reads from the API server: one that was applied right before an instance counts.
func presets(live client.Reader) admission.Presets {
	empty := func() *unstructured.UnstructuredList {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(kubevirt.VirtualMachineInstancePresetGroupVersionKind)
		return list
	}
	return func(ctx context.Context, namespace string, look func([]unstructured.Unstructured) error) error {
		return pages.Each(ctx, live, namespace, empty, func(page *unstructured.UnstructuredList) (bool, error) {
			return false, look(page.Items)
		})
	}
}

func newKeeper(cluster *rest.Config, o Options, log *slog.Logger) (*certs.Keeper, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return nil, errors.New("no namespace: not in a pod; set -namespace, or -api-address 0")
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	// Not the manager's: what it reads it caches.
	c, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the certificate's client: %w", err)
	}
	return &certs.Keeper{
		Trust: []certs.Trust{
			certs.APIServices(subresources.Group, subresources.Versions...),
			certs.APIServices(admission.Group, admission.Version),
		},
		Client:  c,
		Secret:  types.NamespacedName{Namespace: namespace, Name: certificate},
		DNSName: service + "." + namespace + ".svc",
		Now:     time.Now,
		Log:     log,
	}, nil
}
