// What is wrong with a picture: whoever asked for it reads the list, and fails unless it is empty.

const problems = new Set();

export const report = (where, what) => problems.add(`${where}: ${what}`);
export const all = () => [...problems].sort();
