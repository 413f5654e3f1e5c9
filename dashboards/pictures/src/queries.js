// Variables and queries of a board, asked of Prometheus; its answers as Grafana's data frames.
import { FieldType, toDataFrame } from "@grafana/data";
import { report } from "./problems.js";

const SCRAPE_SECONDS = 15;

export class Prometheus {
  constructor(from, to) {
    Object.assign(this, { from, to, values: { datasource: "prometheus" } });
  }

  async ask(path, parameters) {
    const answer = await fetch(`/api/v1/${path}`, { method: "POST", body: new URLSearchParams(parameters) });
    return answer.json();
  }

  /** Choose a value of every variable, as when a board is opened: all of those with several, else the first. */
  async choose(variables) {
    for (const { name, type, query, includeAll, allValue } of variables) {
      if (type === "custom") this.values[name] = query.split(",")[0].split(" : ").at(-1);
      if (type !== "query") continue;
      const [, series, label] = query.match(/^label_values\(([^]*), (\w+)\)$/);
      const matching = new URLSearchParams({ "match[]": this.filled(series, 1), start: this.from, end: this.to });
      const { data } = await (await fetch(`/api/v1/label/${label}/values?${matching}`)).json();
      if (!data.length) report(`variable ${name}`, "has no values");
      this.values[name] = includeAll ? allValue : data[0];
    }
  }

  filled(text, step) {
    const range = this.to - this.from;
    const rate = `${Math.max(4 * SCRAPE_SECONDS, step + SCRAPE_SECONDS)}s`;
    const own = { __rate_interval: rate, __interval: `${step}s`, __range: `${range}s` };
    // $__all is no variable of Grafana but a value of one, which leads to everything: it stays as it is.
    const known = { ...own, __all: "$__all", __range_s: `${range}`, ...this.values };
    return text.replace(/\$(\w+)|\$\{(\w+):regex\}/g, (variable, plain, expression) => {
      const name = plain ?? expression;
      if (!(name in known)) report(`variable ${name}`, "is not resolved");
      return known[name] ?? variable;
    });
  }

  async frames(panel, width) {
    const pixels = Math.ceil((this.to - this.from) / width);
    const step = Math.max(SCRAPE_SECONDS, pixels);
    return (await Promise.all(panel.targets.map((target) => this.#frames(panel, target, step)))).flat();
  }

  async #frames(panel, target, step) {
    const query = this.filled(target.expr, step);
    const times = target.instant ? { time: this.to } : { start: this.from, end: this.to, step };
    const answer = await this.ask(target.instant ? "query" : "query_range", { query, ...times });
    if (answer.status !== "success") report(panel.title, `${target.refId}: ${answer.error}`);
    for (const warning of answer.warnings ?? []) report(panel.title, `${target.refId}: ${warning}`);
    const series = answer.data?.result ?? [];
    if (target.format === "table") return series.length ? [table(target, series, panel.targets.length)] : [];
    return series.map((one) => line(target, one, step));
  }
}

const number = (text) => ({ "+Inf": Infinity, "-Inf": -Infinity })[text] ?? Number(text);

function table(target, series, queries) {
  const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].filter((each) => each !== "__name__").sort();
  const column = (name, type, values) => ({ name, type, values, config: {} });
  return toDataFrame({
    refId: target.refId,
    fields: [
      column("Time", FieldType.time, series.map((one) => one.value[0] * 1000)),
      ...labels.map((label) => column(label, FieldType.string, series.map((one) => one.metric[label] ?? ""))),
      column(queries > 1 ? `Value #${target.refId}` : "Value", FieldType.number, series.map((one) => number(one.value[1]))),
    ],
  });
}

function line(target, { metric, values, value }, step) {
  const points = values ?? [value];
  const named = target.legendFormat.replace(/{{\s*(\w+)\s*}}/g, (_, label) => metric[label] ?? "");
  const displayNameFromDS = target.legendFormat === "__auto" ? target.refId : named;
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: points.map(([at]) => at * 1000), config: { interval: step * 1000 } },
      { name: "Value", type: FieldType.number, labels: metric, values: points.map(([, text]) => number(text)), config: { displayNameFromDS } },
    ],
  });
}
