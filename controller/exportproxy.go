package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export"
)

const (
	// proxyCertificate is the name of the Secret that the export proxy's pods mount.
	proxyCertificate = "virt-exportproxy-tls"
	// proxyAuthorities and proxyBundle are the names of a ConfigMap and of its key, which are KubeVirt's.
	proxyAuthorities = "kubevirt-ca"
	proxyBundle      = "ca-bundle"
)

// exportProxyNamespace returns the namespace of the export proxy; "" if the controller knows none.
func (o Options) exportProxyNamespace() (string, error) {
	if o.ExportProxyNamespace != "" {
		return o.ExportProxyNamespace, nil
	}
	return o.namespace()
}

// addExportProxy has the manager keep the certificate of the export proxy, as long as the proxy's
// Service exists. The proxy mounts it: it needs no right on Secrets, and has no authority's key.
func addExportProxy(m manager.Manager, cluster *rest.Config, o Options, log *slog.Logger) error {
	namespace, err := o.exportProxyNamespace()
	if err != nil || namespace == "" {
		return err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	c, err := client.New(cluster, client.Options{Scheme: scheme, Mapper: m.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("set up the client for the export proxy's certificate: %w", err)
	}
	service := types.NamespacedName{Namespace: namespace, Name: export.ProxyService}
	err = m.Add(&certs.Keeper{
		Client:  c,
		Secret:  types.NamespacedName{Namespace: namespace, Name: proxyCertificate},
		DNSName: service.Name + "." + namespace + ".svc",
		Needed: func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, service, new(corev1.Service)); err != nil {
				if client.IgnoreNotFound(err) == nil {
					return false, nil
				}
				return false, fmt.Errorf("read service %s: %w", service, err)
			}
			return true, nil
		},
		Trust: []certs.Trust{certs.ConfigMap(types.NamespacedName{Namespace: namespace, Name: proxyAuthorities}, proxyBundle)},
		Now:   time.Now,
		Log:   log,
	})
	if err != nil {
		return fmt.Errorf("add the export proxy's certificate: %w", err)
	}
	return nil
}
