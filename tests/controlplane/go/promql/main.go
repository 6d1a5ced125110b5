// promql evaluates expressions with the engine of Prometheus, on samples that it is given.
//
// It reads one JSON object from its input, {"samples": [{"labels", "milliseconds", "value"}],
// "queries": [{"expression", "milliseconds"}]}, and answers with a list: for each query what went
// wrong, if anything did, the selectors of series in it, and the labels and values that came out.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

type input struct {
	Samples []sample `json:"samples"`
	Queries []struct {
		Expression   string `json:"expression"`
		Milliseconds int64  `json:"milliseconds"`
	} `json:"queries"`
}

type sample struct {
	Labels       map[string]string `json:"labels"`
	Milliseconds int64             `json:"milliseconds"`
	Value        float64           `json:"value"`
}

type result struct {
	Error     string   `json:"error"`
	Selectors []string `json:"selectors"`
	Samples   []sample `json:"samples"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var asked input
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "promql")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	store, err := tsdb.Open(folder, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := fill(store, asked.Samples); err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1000000, Timeout: time.Minute})
	answers := []result{}
	for _, query := range asked.Queries {
		answers = append(answers, evaluate(engine, store, query.Expression, query.Milliseconds))
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func fill(store *tsdb.DB, samples []sample) error {
	slices.SortStableFunc(samples, func(a, b sample) int {
		return cmp.Compare(a.Milliseconds, b.Milliseconds)
	})
	appender := store.Appender(context.Background())
	for _, s := range samples {
		if _, err := appender.Append(0, labels.FromMap(s.Labels), s.Milliseconds, s.Value); err != nil {
			return err
		}
	}
	return appender.Commit()
}

func evaluate(engine *promql.Engine, store *tsdb.DB, expression string, at int64) result {
	parsed, err := parser.ParseExpr(expression)
	if err != nil {
		return result{Error: err.Error()}
	}
	answer := result{Selectors: selectors(parsed), Samples: []sample{}}
	query, err := engine.NewInstantQuery(
		context.Background(), store, nil, expression, time.UnixMilli(at))
	if err != nil {
		return result{Error: err.Error()}
	}
	defer query.Close()
	outcome := query.Exec(context.Background())
	vector, err := outcome.Vector()
	if err != nil {
		return result{Error: err.Error()}
	}
	for _, s := range vector {
		answer.Samples = append(answer.Samples, sample{s.Metric.Map(), s.T, s.F})
	}
	return answer
}

func selectors(expression parser.Expr) []string {
	found := []string{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			plain := &parser.VectorSelector{Name: selector.Name, LabelMatchers: selector.LabelMatchers}
			found = append(found, plain.String())
		}
		return nil
	})
	return found
}
