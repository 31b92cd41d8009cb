// Package scrape answers Prometheus, for whoever has one and no collector: the metrics of this process as a page, under the names that
// Prometheus gives them, and with the traces of OpenMetrics' exemplars where it asks for that form.
//
// It knows nothing of who may read the page.
package scrape

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"muxpost.dev/muxpost/core/fault"
)

// Path is where the page is.
const Path = "/metrics"

// New returns a reader of metrics, and the page with what it reads.
func New() (sdkmetric.Reader, http.Handler, error) {
	registry := prometheus.NewRegistry()
	// The names of scopes would be labels of every series, and nobody asks by them.
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "", "the page for Prometheus cannot be made", err)
	}
	return reader, promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}), nil
}
