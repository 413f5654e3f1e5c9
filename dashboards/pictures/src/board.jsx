// Draws one board of dashboards/generated with Grafana's own libraries, in a size of its own. It is not Grafana: there are
// no menus of variables, no choice of times, no annotations, and no migration of old schemas.
import { EventBusSrv, createTheme, ThemeContext } from "@grafana/data";
import { GlobalStyles, PanelChrome, PanelContextProvider } from "@grafana/ui";
import React from "react";
import { createRoot } from "react-dom/client";
import { prepared, setUp } from "./grafana.js";
import { TYPES } from "./panels.jsx";
import * as problems from "./problems.js";
import { Prometheus } from "./queries.js";

const COLUMNS = 24;
const ROW = 38;
const GAP = 8;
const MARGIN = 16;
const DRAWN_AFTER_MS = 3000;

const asked = new URLSearchParams(location.search);
const range = { from: Number(asked.get("from")), to: Number(asked.get("to")) };
const theme = createTheme({ colors: { mode: asked.get("mode") } });
const width = window.innerWidth - 2 * MARGIN;

class Guarded extends React.Component {
  state = {};
  static getDerivedStateFromError = (error) => ({ error });
  componentDidCatch(error) {
    problems.report(this.props.title, `crashed: ${error.message}`);
  }
  render() {
    return this.state.error ? String(this.state.error) : this.props.children;
  }
}

function Panel({ panel, data, pixels, tall }) {
  if (panel.type === "row") return <div style={{ fontSize: 16, fontWeight: 500, lineHeight: `${tall}px` }}>⌄ {panel.title}</div>;
  const Type = TYPES[panel.type];
  return (
    <PanelChrome description={panel.description} height={tall} padding="sm" title={panel.title} width={pixels}>
      {(inner, high) =>
        data.length || panel.type === "stat" ? (
          <Guarded title={panel.title}>
            <Type data={data} height={high} panel={panel} range={range} theme={theme} width={inner} />
          </Guarded>
        ) : (
          <div style={{ color: theme.colors.text.secondary, lineHeight: `${high}px`, textAlign: "center" }}>
            {panel.fieldConfig.defaults.noValue ?? "No data"}
          </div>
        )
      }
    </PanelChrome>
  );
}

function Board({ board, loaded, values }) {
  const chosen = Object.entries(values).filter(([name]) => name !== "datasource");
  const unit = (width + GAP) / COLUMNS;
  const times = [range.from, range.to].map((at) => new Date(at * 1000).toISOString().slice(11, 19));
  return (
    <div style={{ padding: `0 ${MARGIN}px` }}>
      <div style={{ display: "flex", gap: 24, lineHeight: "44px" }}>
        <b style={{ fontSize: 18 }}>{board.title}</b>
        {chosen.map(([name, value]) => (
          <span key={name}>{name}: {value === "(?s:.*)" ? "All" : value}</span>
        ))}
        <span style={{ marginLeft: "auto" }}>{times.join(" to ")} UTC</span>
      </div>
      <div style={{ position: "relative" }}>
        {board.panels.map((panel, index) => {
          const { x, y, w, h } = panel.gridPos;
          return (
            <div key={panel.id} style={{ left: x * unit, position: "absolute", top: y * ROW }}>
              <Panel data={loaded[index]} panel={panel} pixels={w * unit - GAP} tall={h * ROW - GAP} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

async function load(prometheus, panel) {
  if (panel.type === "row") return [];
  const frames = await prometheus.frames(panel, (width * panel.gridPos.w) / COLUMNS);
  if (!frames.some((frame) => frame.length)) {
    problems.report(panel.title, "is empty");
    return [];
  }
  return prepared(panel, frames, theme);
}

function reportClipped() {
  for (const grid of document.querySelectorAll('[role="grid"]')) {
    const title = grid.closest("section")?.querySelector("h2, h6, [title]")?.textContent ?? "a table";
    if (grid.scrollWidth > grid.clientWidth + 1) problems.report(title, "has columns beyond its right edge");
    for (const heading of grid.querySelectorAll('[role="columnheader"]')) {
      const parts = [heading, ...heading.querySelectorAll("*")];
      if (parts.some((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0 && getComputedStyle(each).overflowX !== "visible"))
        problems.report(title, `clips the heading ${heading.textContent}`);
    }
  }
}

async function draw() {
  setUp();
  const board = await (await fetch(`/boards/${asked.get("board")}.json`)).json();
  const prometheus = new Prometheus(range.from, range.to);
  await prometheus.choose(board.templating.list);
  const loaded = await Promise.all(board.panels.map((panel) => load(prometheus, panel)));
  const context = { eventBus: new EventBusSrv(), eventsScope: "board", sync: () => 0 };
  document.body.style.background = theme.colors.background.canvas;
  createRoot(document.getElementById("board")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={context}>
        <Board board={board} loaded={loaded} values={prometheus.values} />
      </PanelContextProvider>
    </ThemeContext.Provider>,
  );
  await new Promise((resolve) => setTimeout(resolve, DRAWN_AFTER_MS));
  reportClipped();
}

window.addEventListener("error", (event) => problems.report("the page", event.message));
draw()
  .catch((error) => problems.report("the page", `${error.message} ${error.stack}`))
  .finally(() => fetch("/problems", { method: "POST", body: JSON.stringify(problems.all()) }));
