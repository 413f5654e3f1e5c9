// The panel types of the boards: Grafana's components, and a state timeline, which is in none of its libraries.
import { FieldType, dateTime, getFieldDisplayName, getFieldDisplayValues } from "@grafana/data";
import { BigValue, BigValueColorMode, BigValueGraphMode, TimeSeries, VizRepeater } from "@grafana/ui";
import { VizOrientation } from "@grafana/schema";
import { TableNG } from "@grafana/ui/unstable";
import React from "react";

const CHARACTER = 6.6;
const AXIS = 24;

function Stat({ panel, data, width, height, theme }) {
  const { colorMode, reduceOptions, textMode, wideLayout } = panel.options;
  const common = { graphMode: BigValueGraphMode.None, height, textMode, theme, wideLayout, width };
  if (!data.length) {
    const nothing = { color: theme.colors.text.disabled, numeric: NaN, text: panel.fieldConfig.defaults.noValue };
    return <BigValue {...common} colorMode={BigValueColorMode.None} value={nothing} />;
  }
  const replaceVariables = (text) => text;
  const values = getFieldDisplayValues({ data, fieldConfig: panel.fieldConfig, reduceOptions, replaceVariables, theme, timeZone: "utc" });
  return (
    <VizRepeater
      autoGrid
      getValues={() => values}
      height={height}
      itemSpacing={3}
      orientation={VizOrientation.Auto}
      renderValue={({ value, ...size }) => <BigValue {...common} colorMode={colorMode} height={size.height} value={value.display} width={size.width} />}
      source={data}
      width={width}
    />
  );
}

function Series({ panel, data, width, height, range }) {
  const { legend } = panel.options;
  const timeRange = { from: dateTime(range.from * 1000), raw: { from: "now-1h", to: "now" }, to: dateTime(range.to * 1000) };
  return (
    <TimeSeries
      frames={data}
      height={height}
      legend={{ calcs: [], displayMode: "list", placement: "bottom", ...legend }}
      options={panel.options}
      structureRev={1}
      timeRange={timeRange}
      timeZone="utc"
      width={width}
    />
  );
}

function Bands({ data, width, height, range, theme }) {
  const rows = data.flatMap((frame) => {
    const [times] = frame.fields.filter((each) => each.type === FieldType.time);
    const numbers = frame.fields.filter((each) => each.type === FieldType.number);
    return numbers.map((field) => ({ field, name: getFieldDisplayName(field, frame, data), times: times.values, step: times.config.interval }));
  });
  const left = 24 + CHARACTER * Math.max(...rows.map(({ name }) => name.length));
  const tall = Math.min(34, (height - AXIS) / rows.length);
  const place = (at) => left + ((width - left - 8) * (at / 1000 - range.from)) / (range.to - range.from);
  const hours = [0, 0.25, 0.5, 0.75, 1].map((share) => range.from + (range.to - range.from) * share);
  return (
    <svg fontFamily={theme.typography.fontFamily} fontSize={12} height={height} width={width}>
      {rows.map(({ field, name, times, step }, row) => (
        <g key={name + row} transform={`translate(0 ${row * tall})`}>
          <text fill={theme.colors.text.primary} textAnchor="end" x={left - 8} y={tall / 2 + 4}>{name}</text>
          {times.map((at, index) => (
            <rect
              fill={field.display(field.values[index]).color}
              fillOpacity={0.75}
              height={tall * 0.86}
              key={at}
              width={Math.max(0.5, place(Math.min(at + step, range.to * 1000)) - place(at) + 0.3)}
              x={place(at)}
            />
          ))}
        </g>
      ))}
      {hours.map((at, index) => (
        <text fill={theme.colors.text.secondary} key={at} textAnchor={index === 4 ? "end" : "start"} x={place(at * 1000)} y={height - 6}>
          {new Date(at * 1000).toISOString().slice(11, 16)}
        </text>
      ))}
    </svg>
  );
}

function Cells({ panel, data, width, height }) {
  const { cellHeight, sortBy } = panel.options;
  const own = { cellHeight, data: data[0], getActions: () => [], height, sortBy, structureRev: 1, width };
  return <TableNG {...own} />;
}

export const TYPES = { "state-timeline": Bands, stat: Stat, table: Cells, timeseries: Series };
